"""A timeline to numbers: how long each step takes, and how much of it the GPU is busy."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.replay.engine import Timeline


@dataclass(frozen=True, slots=True)
class StepTime:
    """Medians over steps, in microseconds.

    Attributes:
        step_time_us: From the end of one step to the end of the next, CPU and GPU; of a single step, from its start.
        kernel_time_us: Time in which the GPU ran something of the step.
        exposed_comm_us: The part of it in which only collectives ran.
        steps: How many steps the medians are over.
        span_us: From the start of the first chosen step to the end of the last; unlike the median of a few steps,
            it never grows when something gets faster.
    """

    step_time_us: float
    kernel_time_us: float
    exposed_comm_us: float
    steps: int
    span_us: float

    @property
    def idle_us(self) -> float:
        """Time in which the GPU ran nothing of the step."""
        return max(self.step_time_us - self.kernel_time_us, 0.0)


def median_step(timeline: Timeline, kernels: pl.DataFrame, steps: pl.DataFrame, chosen: pl.DataFrame) -> StepTime:
    """The median step of a timeline.

    The first of several steps starts with an empty queue, so it counts only if no other is chosen.

    Args:
        timeline: Measured or replayed.
        kernels: The kernel table.
        steps: All steps of the trace.
        chosen: Those to measure.
    """
    table = per_step(timeline, kernels, steps).join(chosen.select("step"), on="step", how="semi")
    steady = table.filter(~pl.col("first"))
    counted = steady if steady.height else table
    time_us, busy_us, exposed_us = counted.select(pl.col("time_ns", "busy_ns", "exposed_ns").median() / 1e3).row(0)
    span_us = table.select((pl.col("end_ns").max() - pl.col("begin_ns").min()) / 1e3).item()
    return StepTime(time_us, busy_us, exposed_us, counted.height, span_us)


def per_step(timeline: Timeline, kernels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per step: ``step``, ``first``, ``begin_ns``, ``end_ns``, ``time_ns``, ``busy_ns``, ``exposed_ns``."""
    gpu = _gpu_time(timeline, kernels)
    begin, end = _cpu_marks(timeline, steps.height)
    rows = (
        steps.select("step", begin=begin, cpu_end=end)
        .join(gpu, on="step", how="left", maintain_order="left")
        .with_columns(begin_ns=pl.coalesce("begin", "gpu_begin"), end_ns=pl.max_horizontal("cpu_end", "gpu_end"))
    )
    first = pl.int_range(pl.len()) == 0
    return rows.select(
        "step",
        "begin_ns",
        "end_ns",
        first=first,
        time_ns=pl.when(first).then(pl.col("end_ns") - pl.col("begin_ns")).otherwise(pl.col("end_ns").diff()),
        busy_ns=pl.col("busy_ns").fill_null(0),
        exposed_ns=pl.col("exposed_ns").fill_null(0),
    )


def _cpu_marks(timeline: Timeline, steps: int) -> tuple[pl.Series, pl.Series]:
    """When each step began and ended on the CPU; null where the trace has no CPU events."""
    marks = timeline.start_ns[timeline.cpu - timeline.marks : timeline.cpu]
    if not timeline.marks:
        empty = pl.Series([None] * steps, dtype=pl.Int64)
        return empty, empty
    return pl.Series(marks[:steps]), pl.Series(marks[steps:])


def _gpu_time(timeline: Timeline, kernels: pl.DataFrame) -> pl.DataFrame:
    """Per step: when its GPU work began and ended, how long it ran, and how long only collectives did."""
    work = pl.DataFrame(
        {
            "step": kernels["step"],
            "start": timeline.activity_start_ns,
            "end": timeline.activity_end_ns,
            "comm": kernels["family"] == "collective",
        }
    ).drop_nulls("step")
    span = work.group_by("step").agg(gpu_begin=pl.col("start").min(), gpu_end=pl.col("end").max())
    busy = union(work).rename({"union_ns": "busy_ns"})
    compute = union(work.filter(~pl.col("comm"))).rename({"union_ns": "compute_ns"})
    return (
        span.join(busy, on="step", how="left")
        .join(compute, on="step", how="left")
        .with_columns(exposed_ns=pl.col("busy_ns") - pl.col("compute_ns").fill_null(0))
    )


def union(intervals: pl.DataFrame) -> pl.DataFrame:
    """Length of the union of ``start``, ``end`` intervals per ``step``: ``step``, ``union_ns``."""
    ordered = intervals.sort("step", "start", "end")
    covered = pl.col("end").cum_max().shift(1).over("step").fill_null(np.iinfo(np.int64).min)
    added = pl.col("end") - pl.max_horizontal("start", covered)
    return ordered.with_columns(added=added.clip(lower_bound=0)).group_by("step").agg(union_ns=pl.col("added").sum())
