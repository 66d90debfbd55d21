"""Find steps that differ from the median step, and their causes."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.idle import IdleBreakdown
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.arrays import select_table
from tracekit.format import shorten_kernel_name
from tracekit.ingest.table_checks import NUMBERED_STEP
from tracekit.messages import Message
from tracekit.messages import reports as told
from tracekit.run import MeasuredRun

MIN_RATIO_TO_MEDIAN = 1.3
"""Ratio to the median step, or its inverse, above which a step is named. Steps of one job differ by a few percent; the
warm-up finding uses the same ratio."""

MAX_DISTANCE_OF_MEDIAN = 0.02
"""How far a step may be from the median, as a part of it, to be called the median step."""

MAX_NAMED_STEPS = 3
"""Most steps that the warning names."""

BUSY = "busy"
THREAD_COLUMNS = ("pid", "tid")
HOST_CAUSES = (IdleCause.LAUNCH_BOUND, IdleCause.SYNC_BOUND)
"""Causes of idle time in which the CPU works towards a launch; before the second kind it had waited for the GPU."""


@dataclass(frozen=True, slots=True)
class UnlikeSteps:
    """Steps that differ from the median one.

    Attributes:
        descriptions: The steps that differ most.
        count: Number of steps that differ.
        step_count: Number of measured steps.
        median_us: The median step.
        has_median: Whether a step takes about as long; else the median is the mean of the two middle ones.
        mean_us: The mean step.
    """

    descriptions: tuple[Message, ...]
    count: int
    step_count: int
    median_us: float
    has_median: bool
    mean_us: float


def find_unlike_steps(
    run: MeasuredRun, idle: IdleBreakdown, measured: pl.DataFrame | None = None
) -> UnlikeSteps | None:
    """Find the measured steps that differ from the median one; None if there are none.

    Args:
        run: The measured run.
        idle: Idle time of its GPU, by cause.
        measured: ``step`` and ``time_ns`` of the steps that were asked for; by default those of its timeline.
    """
    steps = run.measured_steps if measured is None else measured
    steps = select_table(steps, np.isin(steps["step"].to_numpy(), run.chosen_steps["step"].to_numpy()))
    times_ns = steps["time_ns"].to_numpy()
    median_ns = float(np.median(times_ns)) if times_ns.size else 0.0
    if not median_ns or not (np.abs(np.log(times_ns / median_ns)) > np.log(MIN_RATIO_TO_MEDIAN)).any():
        return None
    off = (pl.col("time_ns") / median_ns).log().abs()
    unlike = steps.filter(off > pl.lit(MIN_RATIO_TO_MEDIAN).log()).sort(off, "step", descending=[True, False])
    if unlike.is_empty():
        return None
    has_median = steps.select((off <= MAX_DISTANCE_OF_MEDIAN).any()).item()
    parts = _compare_parts(idle, steps)
    rows = unlike.head(MAX_NAMED_STEPS).select("step", "time_ns").iter_rows()
    described = (
        _describe_step(run, idle, parts.filter(step=step), step, time_ns, time_ns - median_ns) for step, time_ns in rows
    )
    mean_us = run.measured_step.mean_us
    return UnlikeSteps(tuple(described), unlike.height, steps.height, median_ns / 1e3, has_median, mean_us)


def _compare_parts(idle: IdleBreakdown, steps: pl.DataFrame) -> pl.DataFrame:
    """Compare the parts of each step, GPU work and idle causes, with the median step: ``more_ns`` is the difference."""
    ranks = idle.steps.group_by("step").agg(ranks=pl.len())
    pieces = pl.concat(
        [
            idle.segments.select("step", pl.col("cause").replace(HOST_CAUSES[1], HOST_CAUSES[0]), "time_ns"),
            idle.steps.select("step", pl.lit(BUSY).alias("cause"), time_ns="busy_ns"),
        ]
    )
    summed = pieces.group_by("step", "cause").agg(pl.col("time_ns").sum())
    every = steps.select("step").join(ranks, on="step").join(summed.select("cause").unique(), how="cross")
    each = every.join(summed, on=["step", "cause"], how="left").with_columns(
        time_ns=pl.col("time_ns").fill_null(0) / pl.col("ranks")
    )
    return each.select("step", "cause", more_ns=pl.col("time_ns") - pl.col("time_ns").median().over("cause"))


def _describe_step(
    run: MeasuredRun, idle: IdleBreakdown, parts: pl.DataFrame, step: int, time_ns: int, off_ns: float
) -> Message:
    """Describe a step by its time and, if one part makes up half of the difference, that part."""
    shown = {"step": step, "time_us": time_ns / 1e3}
    largest = parts.filter(pl.col("more_ns") * off_ns >= off_ns**2 / 2).sort(pl.col("more_ns").abs(), descending=True)
    if largest.is_empty():
        return told.STEP_TOOK(**shown)
    cause, more_ns = largest.select("cause", "more_ns").row(0)
    differs_us = abs(more_ns) / 1e3
    if cause == BUSY:
        worked = told.STEP_GPU_WORKED_MORE if off_ns > 0 else told.STEP_GPU_WORKED_LESS
        return worked(**shown, gpu_us=differs_us)
    if off_ns < 0:
        return told.STEP_GPU_IDLE_LESS(**shown, idle_us=differs_us)
    waited = {**shown, "idle_us": differs_us, "cause": CAUSE_MEANINGS[IdleCause(cause)]}
    ran = _find_host_work(run, idle, step) if cause == HOST_CAUSES[0] else None
    if ran is None:
        return told.STEP_GPU_IDLE_MORE(**waited)
    return (
        told.STEP_HELD_BY_HOST_WORK(**waited, host_work=ran) if ran else told.STEP_HELD_BY_UNKNOWN_HOST_WORK(**waited)
    )


def _find_host_work(run: MeasuredRun, idle: IdleBreakdown, step: int) -> str | None:
    """Find what the CPU ran during most of the step's longest wait for a launch; empty if nothing was recorded.

    None where it can't be told: no kernel waited, its launch wasn't recorded, or several ranks were read.
    """
    waits = idle.segments.filter(pl.col("step") == step, pl.col("cause").is_in(HOST_CAUSES)).drop_nulls("kernel")
    if waits.is_empty() or len(run.ranks) > 1 or run.trace.calls.is_empty():
        return None
    kernel, waited_ns = waits.group_by("kernel").agg(pl.col("time_ns").sum()).sort("time_ns", "kernel").row(-1)
    start_ns, call = run.kernels.select("ts_ns", "call").row(kernel)
    if call is None:
        return None
    rank = run.trace
    thread = rank.calls[call].select(THREAD_COLUMNS)
    spans = [
        table.select("name", "ts_ns", "dur_ns", *THREAD_COLUMNS) for table in (rank.ops, rank.calls, rank.annotations)
    ]
    end_ns = pl.min_horizontal(pl.col("ts_ns") + pl.col("dur_ns"), start_ns)
    within_ns = end_ns - pl.max_horizontal(pl.col("ts_ns"), start_ns - waited_ns)
    ran = pl.concat(spans).join(thread, on=THREAD_COLUMNS, how="semi").filter(within_ns >= waited_ns / 2)
    ran = ran.filter(~pl.col("name").str.contains(NUMBERED_STEP)).sort("dur_ns", "name")
    return shorten_kernel_name(ran["name"][0]) if ran.height else ""


def build_warning(found: UnlikeSteps) -> Message:
    """Build the warning."""
    write = told.STEPS_DIFFER if found.has_median else told.STEPS_DIFFER_FROM_MEAN
    return write(
        differing=found.count,
        measured=found.step_count,
        median_us=found.median_us,
        mean_us=found.mean_us,
        min_ratio=MIN_RATIO_TO_MEDIAN,
        largest=found.descriptions,
    )
