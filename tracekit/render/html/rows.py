"""Rows of the page's kernel table: kernels by family, longest first."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from itertools import accumulate

from tracekit.format import format_shape, shorten, shorten_kernel_name
from tracekit.reporting.model import Report
from tracekit.reporting.sections.kernels import KernelTime, Tiles

MAX_ROWS = 400
"""Maximum number of kernels in a page."""
MAX_ROWS_BYTES = 55_000
"""Approximate size of the rows in bytes: a page has to stay small enough for a mail."""
ROW_BYTES = 450
"""Approximate size of a row's elements and numbers, without its names and predictions."""
PREDICTED_BYTES = 70
"""Approximate size of the prediction on one target."""
MAX_TITLE_CHARS = 60
MAX_NAME_CHARS = 200
MAX_SHAPE_CHARS = 120


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel.

    Attributes:
        id: Stable identifier within the page: the same kernel has it in the report of another trace.
        place: Place in the report's kernels.
        kernel: The kernel.
        title: Its op, or its shortened name.
        detail: Precision, shapes and tiles.
        name: Its name, shortened.
        predicted_tiles: Tiles on each target.
    """

    id: str
    place: int
    kernel: KernelTime
    title: str
    detail: str
    name: str
    predicted_tiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """All kernels of a family.

    Attributes:
        family: The family.
        rows: The kernels that the page shows.
        count: Launches of all kernels in a mean step.
        time_us: Their time.
        share: Percent of all kernels' time.
        utilization: Roofline bound over time, percent, of the kernels whose work is known; ``None`` without any.
        predicted_us: Their time on each target.
        omitted: Number of kernels that the page leaves out.
        omitted_us: Time of those.
    """

    family: str
    rows: tuple[KernelRow, ...]
    count: float
    time_us: float
    share: float
    utilization: float | None
    predicted_us: tuple[float, ...]
    omitted: int
    omitted_us: float


def build_kernel_families(report: Report) -> list[KernelFamily]:
    """Build the families with most time first, each with those of its kernels that the page has room for."""
    shown = count_shown_kernels(report)
    by_family: dict[str, list[tuple[int, KernelTime]]] = {}
    for place, kernel in enumerate(report.kernels):
        by_family.setdefault(kernel.family, []).append((place, kernel))
    families = [_build_family(family, members, shown) for family, members in by_family.items()]
    return sorted(families, key=lambda family: -family.time_us)


def count_shown_kernels(report: Report) -> int:
    """Count the kernels with most time that fit into a page."""
    sizes = accumulate(_estimate_bytes(kernel) for kernel in report.kernels[:MAX_ROWS])
    return sum(size <= MAX_ROWS_BYTES for size in sizes)


def _estimate_bytes(kernel: KernelTime) -> int:
    name = min(len(kernel.name), MAX_NAME_CHARS) + min(len(kernel.shape or ""), MAX_SHAPE_CHARS)
    return ROW_BYTES + name + PREDICTED_BYTES * len(kernel.predicted_us)


def _build_family(family: str, members: Sequence[tuple[int, KernelTime]], shown: int) -> KernelFamily:
    kernels = [kernel for _, kernel in members]
    left_out = [kernel for place, kernel in members if place >= shown]
    return KernelFamily(
        family=family,
        rows=tuple(_build_rows((place, kernel) for place, kernel in members if place < shown)),
        count=sum(kernel.count for kernel in kernels),
        time_us=sum(kernel.time_us for kernel in kernels),
        share=sum(kernel.share for kernel in kernels),
        utilization=_average_utilization(kernels),
        predicted_us=tuple(map(sum, zip(*(kernel.predicted_us for kernel in kernels), strict=True))),
        omitted=len(left_out),
        omitted_us=sum(kernel.time_us for kernel in left_out),
    )


def _average_utilization(kernels: Iterable[KernelTime]) -> float | None:
    """Average the utilization by time, over the kernels where it is known."""
    known = [(kernel.utilization, kernel.time_us) for kernel in kernels if kernel.utilization is not None]
    time_us = sum(time for _, time in known)
    return sum(utilization * time for utilization, time in known) / time_us if time_us else None


def _build_rows(members: Iterable[tuple[int, KernelTime]]) -> Iterator[KernelRow]:
    for place, kernel in members:
        shape = shorten(format_shape(kernel.shape), MAX_SHAPE_CHARS)
        yield KernelRow(
            id=_identify(kernel),
            place=place,
            kernel=kernel,
            title=shorten(kernel.op or shorten_kernel_name(kernel.name), MAX_TITLE_CHARS),
            detail=" · ".join(part for part in (kernel.dtype, shape, _describe_tiles(kernel.tiles)) if part),
            name=shorten(kernel.name, MAX_NAME_CHARS),
            predicted_tiles=tuple(map(_describe_tiles, kernel.predicted_tiles)),
        )


def _identify(kernel: KernelTime) -> str:
    what = "\0".join((kernel.name, kernel.op or "", kernel.family, kernel.dtype or "", kernel.shape or ""))
    return f"kernel-{blake2s(what.encode(errors='surrogatepass'), digest_size=6).hexdigest()}"


def _describe_tiles(tiles: Tiles | None) -> str:
    """Return such as "tiles of 128 × 256, split in 2, 3.9 waves, the traced tile takes 1.3x"; nothing without tiles."""
    if tiles is None:
        return ""
    split = f", split in {tiles.split_k}" if tiles.split_k and tiles.split_k > 1 else ""
    waves = "" if tiles.waves is None else f", {tiles.waves:.2g} waves" if tiles.waves < 100 else ", 100 waves or more"
    size = f"blocks of {tiles.tile_m} queries" if tiles.tile_n is None else f"tiles of {tiles.tile_m} × {tiles.tile_n}"
    kept = f", the traced tile takes {tiles.kept_ratio:.2f}x" if tiles.kept_ratio and tiles.kept_ratio > 1.005 else ""
    return f"{size}{split}{waves}{kept}"
