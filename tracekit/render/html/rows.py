"""Rows of the page's tables: kernels by family, targets and findings."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from itertools import accumulate
from math import log

from predictors import PredictorError, load_gpu
from tracekit.format import format_shape, shorten, shorten_kernel_name
from tracekit.messages import predictions as told
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.question import RankBy
from tracekit.render.sentences import group_findings
from tracekit.reporting.findings.context import Finding
from tracekit.reporting.model import Report, TargetsReport
from tracekit.reporting.sections.decision import MIN_RATIO_IN_TIMES, Decision, TargetDecision
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


MAX_FIRST_TARGETS = 3
"""Targets, best first, whose columns tables show before a reader chooses others."""
COST_ANSWERS = (
    told.COSTS_MORE,
    told.COSTS_TIMES,
    told.COSTS_LESS,
    told.COSTS_UNDECIDED,
    told.COSTS_ALONE,
    told.PAYS_BELOW,
)
"""The answers that other prices change."""


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One target.

    Attributes:
        id: Stable identifier within the page.
        decision: What the work takes and costs there.
        maker: Vendor and architecture; empty of a GPU that tracekit doesn't know.
        spread_pct: Half of the interval's width, percent of the likely step.
        low_place: Where the interval begins, percent of the table's axis of times.
        width: How long it is, percent of that.
        likely_place: Where the likely step is.
    """

    id: str
    decision: TargetDecision
    step: PredictedStep
    maker: str
    spread_pct: float
    low_place: float
    width: float
    likely_place: float


@dataclass(frozen=True, slots=True)
class TimeScale:
    """A logarithmic axis on which all intervals have a place: very slow targets leave room for the others."""

    low_us: float
    high_us: float

    def locate(self, time_us: float) -> float:
        """Return the place of a time, in percent of the axis."""
        return 100 * log(time_us / self.low_us) / log(self.high_us / self.low_us)


def build_target_rows(report: TargetsReport) -> list[TargetRow]:
    """Build the rows in order of rank; none without targets."""
    if report.decision is None:
        return []
    scale = find_time_scale(report)
    steps = {target.label: target for target in report.targets}
    return [_build_row(report, one, steps[one.label], scale) for one in report.decision.targets if one.label in steps]


def find_time_scale(report: TargetsReport) -> TimeScale:
    """Return the axis that holds the measured step and all intervals."""
    here_us = [report.source.step_time_us] * (not report.source.is_captured)
    times = [*here_us, *(us for one in report.targets for us in (one.low_us, one.high_us))]
    positive = [us for us in times if us > 0] or [1.0]
    return TimeScale(min(positive) / 1.1, max(positive) * 1.1)


def list_first_targets(report: TargetsReport) -> list[str]:
    """List the best targets, whose columns tables show before a reader chooses others."""
    return [one.label for one in report.decision.targets[:MAX_FIRST_TARGETS]] if report.decision else []


def _build_row(report: TargetsReport, decision: TargetDecision, step: PredictedStep, scale: TimeScale) -> TargetRow:
    low_place = scale.locate(step.low_us or scale.low_us)
    return TargetRow(
        id=f"target-{decision.label}",
        decision=decision,
        step=step,
        maker=_name_maker(step.gpu),
        spread_pct=50 * (step.high_us - step.low_us) / (step.step.step_time_us or 1.0),
        low_place=low_place,
        width=scale.locate(step.high_us or scale.low_us) - low_place,
        likely_place=scale.locate(step.step.step_time_us or scale.low_us),
    )


def _name_maker(gpu: str) -> str:
    try:
        known = load_gpu(gpu)
    except PredictorError:
        return ""
    return f"{known.vendor} {known.architecture}"


def describe_pricing(report: TargetsReport, rows: list[TargetRow]) -> dict[str, object] | None:
    """Return what the page's script needs to recompute costs; None without targets."""
    decision = report.decision
    if decision is None:
        return None
    here = decision.here
    return {
        "unit": decision.unit.removesuffix("s"),
        "units": decision.unit,
        "amount": decision.amount,
        "is_ranked_by_cost": RankBy(decision.ranked_by).needs_prices,
        "min_ratio_in_times": MIN_RATIO_IN_TIMES,
        "answers": {template.code: template.text for template in COST_ANSWERS},
        "here": {
            "name": here.name,
            "price": here.price,
            "rented": here.rented,
            "gpu_hours": here.gpu_hours,
        },
        "targets": list(_describe_targets(decision, rows)),
    }


def _describe_targets(decision: Decision, rows: list[TargetRow]) -> Iterator[dict[str, object]]:
    for row in rows:
        yield {
            "id": row.id,
            "name": row.decision.name,
            "rank": row.decision.rank,
            "rented": row.decision.rented,
            "fits": row.step.memory.fits,
            "price": row.decision.price,
            "gpu_hours": row.decision.gpu_hours.ordered,
            "speedup": row.decision.speedup.ordered if row.decision.speedup else None,
        }


@dataclass(frozen=True, slots=True)
class FindingRow:
    """Findings that give several targets the same advice, or one alone.

    Attributes:
        id: Stable identifier within the page.
        kernels: Places in the report's kernels of those that the evidence names.
    """

    id: str
    findings: list[Finding]
    kernels: list[int]


def build_finding_rows(report: Report) -> list[FindingRow]:
    """Build the rows in the order of the findings."""
    named = [
        (" ".join(part for part in (kernel.op or kernel.name, kernel.dtype, format_shape(kernel.shape)) if part))
        for kernel in report.kernels
    ]
    seen: Counter[str] = Counter()
    rows = []
    for group in group_findings(report.findings):
        code = group[0].code
        seen[code] += 1
        evidence = {row.what for finding in group for row in finding.evidence}
        kernels = [i for i, name in enumerate(named) if name in evidence]
        rows.append(FindingRow(f"finding-{code}" + (f"-{seen[code]}" if seen[code] > 1 else ""), group, kernels))
    return rows
