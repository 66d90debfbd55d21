"""What share of the GPU's peak a step uses, its MFU, and where the rest goes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import polars as pl

from predictors import Gpu
from predictors.hardware import derive_hardware
from tracekit.messages import Message
from tracekit.messages import findings as messages
from tracekit.prediction import Prediction
from tracekit.reporting.columns import Column
from tracekit.reporting.kernel_rows import find_as_traced
from tracekit.reporting.sections.groups import PhaseTime
from tracekit.reporting.sections.limits import IdleTime
from tracekit.reporting.sections.step import TRAILING_PARTS, TimeBar
from tracekit.run import MeasuredRun
from tracekit.workload.module_paths import OPTIMIZER

PRODUCT_FAMILIES = ("gemm", "conv", "attention", "moe", "linear_attention")
"""Families whose operations count: matrix products, which the peak is one of."""
BACKWARD_FACTOR = 2.0
"""Products of a backward pass over those of the forward pass: one for the inputs' gradient, one for the weights'. What
is beyond that is computed again (PaLM, arXiv:2204.02311, appendix B)."""
BYTES_PER_GB = 1e3
"""Bytes in a microsecond for each GB/s."""


@dataclass(frozen=True, slots=True)
class PeakUse:
    """A part of the step in which the GPU's peak is used, or isn't; all parts of a GPU add up to its step.

    Attributes:
        part: ``products`` is the MFU; with ``recomputed`` it is the HFU.
    """

    on: Annotated[str | None, Column("The target; blank: the measured step.")]
    part: Annotated[str, Column("Stable name; products is the MFU, with recomputed it is the HFU.")]
    meaning: Annotated[Message, Column("What the time goes to.", "what")]
    time_us: Annotated[float, Column("Its time in the median step.", "time")]
    share: Annotated[float, Column("Of the step, percent.", "of the step")]


@dataclass(frozen=True, slots=True)
class ProductSums:
    """Sums over a step's products, of a GPU.

    Attributes:
        peak_us: What their operations take at the peak.
        recomputed_us: The part of it for activations that are computed again.
        update_us: The part of it for an optimizer that multiplies matrices, such as Muon.
        memory_us: How much longer their bytes take at the memory's full rate.
        time_us: What they take.
    """

    peak_us: float
    recomputed_us: float
    update_us: float
    memory_us: float
    time_us: float


def build_peak_uses(
    run: MeasuredRun,
    rows: pl.DataFrame,
    targets: Sequence[Prediction],
    bars: Sequence[TimeBar],
    phases: Sequence[PhaseTime],
    idle: Sequence[IdleTime],
) -> tuple[PeakUse, ...]:
    """Build the parts of the measured step, and of each predicted one whose kernels are those of the trace.

    The step of a program that never ran is no baseline for predicted ones: it stands alone or not at all.

    Args:
        run: The measured run.
        rows: The chosen steps' kernels.
        targets: The predictions.
        bars: Where the measured step's time goes, and that of each predicted one.
        phases: Phases of the measured step; without them nothing tells what is computed again.
        idle: Causes of the measured step's idle time.
    """
    found: list[PeakUse] = []
    products = rows.filter(pl.col("family").is_in(PRODUCT_FAMILIES) & (pl.col("work_flops") > 0))
    per_step = run.chosen_steps.height * count_gpus(run)
    if run.gpu is not None and not (run.is_captured and targets):
        sums = sum_products(products, run.gpu, "time_us", per_step, has_phases=len(phases) > 1)
        causes = [(one.cause, one.meaning, one.time_us) for one in idle]
        found += _list_parts(None, bars[0], sums, causes)
    for place, (target, is_same) in enumerate(zip(targets, find_as_traced(run, targets), strict=True)):
        if is_same:
            gpu = target.target.gpu.gpu
            sums = sum_products(products, gpu, f"time {place}", per_step, has_phases=len(phases) > 1)
            found += _list_parts(target.label, bars[place + 1], sums, ())
    return tuple(found)


def count_gpus(run: MeasuredRun) -> int:
    """Count the GPUs whose kernels a run has."""
    return max(run.kernels.select("rank", "device").n_unique(), 1)


def sum_products(products: pl.DataFrame, gpu: Gpu, time: str, per_step: int, *, has_phases: bool) -> ProductSums:
    """Sum the products of a step on a GPU.

    Example: products of 100 TFLOP forward and 300 backward on a GPU of 1,000 TFLOP/s take 400 ms at its peak, of which
    100 ms are for activations that are computed again: the backward pass has 200 of its own.

    Args:
        products: Their rows.
        gpu: The GPU.
        time: Column of their times.
        per_step: Number of steps, times GPUs, that the rows are of.
        has_phases: Whether the phases are known.
    """
    if products.is_empty():
        return ProductSums(0.0, 0.0, 0.0, 0.0, 0.0)
    hardware = derive_hardware(gpu)
    rates = {dtype: hardware.get_tflops(dtype) * 1e6 for dtype in products["dtype"].unique()}
    rate = pl.col("dtype").replace_strict(rates, return_dtype=pl.Float64)
    at_memory = pl.col("work_bytes").fill_null(0.0) / (gpu.bandwidth_gbps * BYTES_PER_GB)
    timed = products.select(
        "family", "phase", time_us=pl.col(time), peak_us=pl.min_horizontal(pl.col("work_flops") / rate, time),
        at_memory=pl.min_horizontal(at_memory, time),
    )  # fmt: skip
    beyond = pl.max_horizontal(pl.col("at_memory") - pl.col("peak_us"), 0.0)
    peak_us, memory_us, time_us = timed.select(pl.col("peak_us").sum(), beyond.sum(), pl.col("time_us").sum()).row(0)
    again = sum(_list_recomputed(timed)) if has_phases else 0.0
    update_us = timed.filter(phase=OPTIMIZER)["peak_us"].sum()
    return ProductSums(*(float(one) / per_step for one in (peak_us, again, update_us, memory_us, time_us)))


def _list_recomputed(timed: pl.DataFrame) -> Iterator[float]:
    """Yield by how much the backward pass of each family exceeds what gradients take."""
    by_phase = timed.group_by("family", "phase").agg(pl.col("peak_us").sum())
    for family in by_phase["family"].unique():
        told = dict(by_phase.filter(family=family).select("phase", "peak_us").iter_rows())
        yield max(told.get("backward", 0.0) - BACKWARD_FACTOR * told.get("forward", 0.0), 0.0)


def _list_parts(
    on: str | None, bar: TimeBar, sums: ProductSums, causes: Sequence[tuple[str, Message, float]]
) -> Iterator[PeakUse]:
    """Yield the parts of a step, those of products first, then the kernels of other families, then idle time."""
    times = dict(bar.parts)
    left_us = max(sum(times.get(family, 0.0) for family in PRODUCT_FAMILIES) - sums.peak_us, 0.0)
    slower_us = max(sums.time_us - sums.peak_us, 0.0)
    memory_us = left_us * min(sums.memory_us / slower_us, 1.0) if slower_us else 0.0
    told: list[tuple[str, Message, float]] = [
        ("products", messages.PEAK_PRODUCTS(), sums.peak_us - sums.recomputed_us - sums.update_us),
        ("recomputed", messages.PEAK_RECOMPUTED(), sums.recomputed_us),
        ("products of the update", messages.PEAK_UPDATE(), sums.update_us),
        ("memory-bound products", messages.PEAK_MEMORY(), memory_us),
        ("slow products", messages.PEAK_SLOW_PRODUCTS(), left_us - memory_us),
    ]
    others = [(family, time_us) for family, time_us in bar.parts if family not in (*PRODUCT_FAMILIES, *TRAILING_PARTS)]
    told += [(family, messages.PEAK_OTHER(family=family), time_us) for family, time_us in others]
    told += causes or [("idle", messages.PEAK_IDLE(), sum(times.get(part, 0.0) for part in TRAILING_PARTS))]
    whole_us = bar.step_time_us or 1.0
    yield from (
        PeakUse(on, part, meaning, time_us, 100 * time_us / whole_us)
        for part, meaning, time_us in told
        if time_us or part == "products"
    )
