"""Kernels by shape, those faster than their bound, the limits of each GPU, and the errors of the laws in use."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Annotated, Any

import polars as pl

from predictors import Gpu
from predictors.hardware import derive_hardware
from predictors.model import TILE_COLUMNS
from predictors.weights_file import SHIPPED_WEIGHTS
from tracekit.arrays import IN_ORDER
from tracekit.format import format_percent, format_shape
from tracekit.prediction import Prediction
from tracekit.reporting.columns import Column
from tracekit.reporting.kernel_rows import choose_tiles
from tracekit.run import MeasuredRun

KERNEL_KEYS = ("name", "input_dims", "op", "family", "dtype")
"""Columns whose equal values make launches one kernel."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a matrix product, a layer of experts or attention is cut into blocks.

    Attributes:
        kept_ratio: On a target, how many times as long a product would take with the trace's tile; ``None`` if unknown.
    """

    tile_m: Annotated[int, Column("Rows of a tile, of attention queries of a block, as the name tells.")]
    tile_n: Annotated[int | None, Column("Columns of the tile, of attention keys.")]
    split_k: Annotated[int | None, Column("Parts that the k of a product is cut into, of decoding the keys.")]
    waves: Annotated[float | None, Column("Blocks over SMs: 1.2 are two rounds, the second of a fifth of the SMs.")]
    kept_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All launches of one kernel on one shape.

    Attributes:
        work_known: Whether its work is known.
        predicted_us: Summed time per step on each target, in the report's order of targets.
        limiters: Limiting resource on each target.
        methods: How the time on each target was obtained: measured, transfer, law, scaled or kept.
        tiles: As the kernel's name tells them; ``None`` for others.
        predicted_tiles: On each target, as the law chooses them; ``None`` for kernels that aren't tiled, and where
            kernels of another size run there.
    """

    name: Annotated[str, Column("The kernel's name.", "kernel")]
    op: Annotated[str | None, Column("The CPU op that launches it.", "op")]
    family: Annotated[str, Column("Kind of kernel.", "family")]
    dtype: Annotated[str | None, Column("Precision asked for.")]
    shape: Annotated[str | None, Column("The op's input shapes, as recorded.", "shape", format_shape)]
    count: Annotated[float, Column("Launches per step.", "launches")]
    time_us: Annotated[float, Column("Summed time per step, measured.", "time")]
    share: Annotated[float, Column("Part of all kernels' summed time, percent.", "of kernel time")]
    utilization: Annotated[
        float | None, Column("Percent of the roofline: its work's least time over its time.", "% roof")
    ]
    limiter: Annotated[
        str | None, Column("What bounds it: compute, memory, latency (too small to fill the GPU) or link.", "bound by")
    ]
    work_known: bool
    flops: Annotated[float | None, Column("Operations per step; a multiply-add is two.")]
    bytes: Annotated[float | None, Column("Compulsory memory traffic per step.")]
    tflops: Annotated[float | None, Column("Operations over its time, in 1e12 a second.")]
    tbps: Annotated[float | None, Column("Memory traffic over its time, in 1e12 bytes a second.")]
    predicted_us: tuple[float, ...]
    limiters: tuple[str, ...]
    methods: tuple[str, ...]
    tiles: Tiles | None
    predicted_tiles: tuple[Tiles | None, ...]


def build_kernel_times(
    run: MeasuredRun, kernels: pl.DataFrame, predictions: Sequence[Prediction]
) -> tuple[KernelTime, ...]:
    """Build the kernels, longest first."""
    steps, targets = run.chosen_steps.height, len(predictions)
    whole = kernels["time_us"].sum() or 1.0
    rows = (
        kernels.lazy()
        .group_by(KERNEL_KEYS)
        .agg(
            *(pl.col(f"time {i}").sum() for i in range(targets)),
            *(pl.col(f"{column} {i}").first() for i in range(targets) for column in ("limiter", "method")),
            pl.col("kernel").first(),
            *(pl.col(column).first() for column in ("tile_m", "tile_n", "waves")),
            split_k=pl.when(~pl.col("split_k").first()).then(1),
            count=pl.len(),
            time=pl.col("time_us").sum(),
            bound=pl.col("bound_us").sum(),
            limiter=pl.col("limiter").first(),
            bounded=pl.col("bound_us").is_not_null().all(),
            worked=pl.col("work_from").is_not_null().all(),
            flops=pl.col("work_flops").sum(),
            bytes=pl.col("work_bytes").sum(),
            counted=pl.col("work_bytes").is_not_null().all(),
        )
        .sort("time", *KERNEL_KEYS, descending=[True, *[False] * len(KERNEL_KEYS)])
        .collect(engine=IN_ORDER)
    )
    there = choose_tiles(run.kernels[rows["kernel"]], run, predictions)
    tiles = [[_build_tiles(row) for row in table.iter_rows(named=True)] for table in (rows, *there)]
    return tuple(
        KernelTime(
            name=row["name"],
            op=row["op"],
            family=row["family"],
            dtype=row["dtype"],
            shape=row["input_dims"],
            count=row["count"] / steps,
            time_us=row["time"] / steps,
            share=100 * row["time"] / whole,
            utilization=100 * row["bound"] / row["time"] if row["bounded"] and row["time"] else None,
            limiter=row["limiter"] if row["bounded"] else None,
            work_known=row["worked"],
            flops=row["flops"] / steps if row["counted"] else None,
            bytes=row["bytes"] / steps if row["counted"] else None,
            tflops=row["flops"] / row["time"] / 1e6 if row["counted"] and row["time"] else None,
            tbps=row["bytes"] / row["time"] / 1e6 if row["counted"] and row["time"] else None,
            predicted_us=tuple(row[f"time {i}"] / steps for i in range(targets)),
            limiters=tuple(row[f"limiter {i}"] for i in range(targets)),
            methods=tuple(row[f"method {i}"] for i in range(targets)),
            tiles=mine,
            predicted_tiles=tuple(predicted),
        )
        for row, mine, *predicted in zip(rows.iter_rows(named=True), *tiles, strict=True)
    )


def _build_tiles(row: Mapping[str, Any]) -> Tiles | None:
    tile_m, *others = (row.get(name) for name in TILE_COLUMNS)
    return None if tile_m is None else Tiles(tile_m, *others)


BOUND_TOLERANCE = 1.02
"""Tolerance for clocks above the datasheet's, and for times in whole microseconds."""
IS_FASTER_THAN_BOUND = (
    (pl.col("time_us") > 0)
    & (pl.col("family") != "collective")
    & (pl.col("bound_us") > BOUND_TOLERANCE * pl.col("time_us"))
).fill_null(False)
"""Kernels faster than their bound; kernels with a recorded time of 0 don't count."""
MAX_CACHE_MULTIPLE = 4
"""A kernel's bytes may partly be in the last-level cache up to this multiple of its size: inputs and outputs."""


@dataclass(frozen=True, slots=True)
class KernelOverBound:
    """Launches of one kernel on one shape that are faster than their bound."""

    name: Annotated[str, Column("The kernel's name.", "kernel")]
    op: Annotated[str | None, Column("The CPU op that launches it.")]
    family: Annotated[str, Column("Kind of kernel.", "family")]
    shape: Annotated[str | None, Column("The op's input shapes, as recorded.")]
    share: Annotated[float, Column("Of all kernels' summed time, percent.", "of kernel time")]
    utilization: Annotated[float, Column("Percent of the roofline: above 100.", "% roof")]
    cached: Annotated[bool, Column("Whether its data may come from the cache; else its work is counted too high.")]


def build_kernels_over_bound(kernels: pl.DataFrame, gpu: Gpu | None) -> tuple[KernelOverBound, ...]:
    """Build the list of such kernels, longest first; empty if the GPU isn't known."""
    if gpu is None:
        return ()
    whole = kernels["time_us"].sum()
    beaten = kernels.lazy().filter(IS_FASTER_THAN_BOUND)
    in_cache = (pl.col("limiter") == "memory") & (
        pl.col("work_bytes") <= MAX_CACHE_MULTIPLE * gpu.last_level_cache_bytes
    )
    rows = (
        beaten.group_by(KERNEL_KEYS)
        .agg(time=pl.col("time_us").sum(), bound=pl.col("bound_us").sum(), cached=in_cache.all())
        .sort("time", *KERNEL_KEYS, descending=[True, *[False] * len(KERNEL_KEYS)])
        .collect(engine=IN_ORDER)
    )
    return tuple(
        KernelOverBound(
            name=row["name"],
            op=row["op"],
            family=row["family"],
            shape=row["input_dims"],
            share=100 * row["time"] / whole,
            utilization=100 * row["bound"] / row["time"],
            cached=bool(row["cached"]),
        )
        for row in rows.iter_rows(named=True)
    )


MIN_DTYPE_FRACTION = 0.02
"""Fraction of the GPU time below which a precision gets no roof of its own."""


@dataclass(frozen=True, slots=True)
class Roof:
    """The limits of one GPU.

    Attributes:
        gpu: Canonical name.
        measured: Whether it is the GPU of the trace.
        bandwidth_gbps: Memory bandwidth.
        peak_tflops: Dense peak by precision, for precisions that the step uses and the GPU supports, highest first;
            for a GeForce at its real clock.
    """

    gpu: str
    measured: bool
    bandwidth_gbps: float
    peak_tflops: tuple[tuple[str, float], ...]


def build_roofs(run: MeasuredRun, kernels: pl.DataFrame, targets: Sequence[Prediction]) -> tuple[Roof, ...]:
    """Build the roofs of the source GPU, if known, and of the targets."""
    dtypes = _list_dtypes(kernels)
    source = [_build_roof(run.gpu, dtypes, measured=True)] if run.gpu else []
    others = {target.gpu: target.target.gpu.gpu for target in targets if run.gpu is None or target.gpu != run.gpu.slug}
    return (*source, *(_build_roof(gpu, dtypes, measured=False) for gpu in others.values()))


def _list_dtypes(kernels: pl.DataFrame) -> list[str]:
    """List the precisions with enough time, most time first."""
    worked = kernels.lazy().filter(pl.col("work_flops") > 0, pl.col("dtype").is_not_null())
    times = worked.group_by("dtype").agg(pl.col("time_us").sum()).sort("time_us", "dtype", descending=[True, False])
    found = dict(times.collect(engine=IN_ORDER).iter_rows())
    return [dtype for dtype, time_us in found.items() if time_us >= MIN_DTYPE_FRACTION * sum(found.values())]


def _build_roof(gpu: Gpu, dtypes: Sequence[str], *, measured: bool) -> Roof:
    rates = derive_hardware(gpu)
    peaks = {dtype: rates.get_tflops(dtype) for dtype in dtypes if gpu.supports(dtype)}
    return Roof(gpu.slug, measured, gpu.bandwidth_gbps, tuple(sorted(peaks.items(), key=lambda item: -item[1])))


@dataclass(frozen=True, slots=True)
class LawError:
    """One latency law and its errors.

    Attributes:
        on_target: Error after the fit on each target; ``None`` for a GPU without
            kernels of more than 20 µs to compare with.
    """

    law: Annotated[str, Column("Kernel family and precision; half: tensor-core formats from TF32 to 16 bits.", "law")]
    share: Annotated[float, Column("Kernel time of the measured step that it models, percent.", "of kernel time")]
    gpus: Annotated[tuple[str, ...], Column("GPUs that it was fitted to.", "fitted on")]
    held_out: Annotated[
        float | None,
        Column("Median error in percent on a GPU that was left out of the fit.", "GPU held out", format_percent),
    ]
    worst: Annotated[float | None, Column("The same for the GPU that came out worst.", "worst GPU", format_percent)]
    on_target: tuple[float | None, ...]


LAW_TITLES = {"sequence": "attention, whole sequences"}
"""Laws whose displayed name differs from their own name."""


def build_law_errors(kernels: pl.DataFrame, targets: Sequence[Prediction]) -> tuple[LawError, ...]:
    """Build the errors of the laws in use, most modelled time first."""
    whole = kernels["time_us"].sum() or 1.0
    times = kernels.lazy().drop_nulls("law").group_by("law").agg(pl.col("time_us").sum())
    rows = times.sort("time_us", "law", descending=[True, False]).collect(engine=IN_ORDER).iter_rows()
    gpus = [target.gpu for target in targets]
    return tuple(_make_law_error(law, 100 * time / whole, gpus) for law, time in rows)


def _make_law_error(law: str, share: float, targets: Sequence[str]) -> LawError:
    entry = _load_card(law)
    held_out = [row["median"] for row in entry.get("left_out", ())]
    known = {row["gpu"]: row["median"] for row in entry.get("in_base", ())}
    return LawError(
        law=LAW_TITLES.get(law, law),
        share=share,
        gpus=tuple(entry.get("gpus", ())),
        held_out=median(held_out) if held_out else None,
        worst=max(held_out, default=None),
        on_target=tuple(known.get(gpu) for gpu in targets),
    )


@cache
def _load_card(law: str) -> Mapping[str, Any]:
    """Load what the card says of a law; only its section is parsed, in a tenth of the time of all."""
    key = law if law.isidentifier() else f'"{law}"'
    return tomllib.loads(_read_card().partition(f"\n[laws.{key}]\n")[2].partition("\n[")[0])


@cache
def _read_card() -> str:
    return (SHIPPED_WEIGHTS / "card.toml").read_text()
