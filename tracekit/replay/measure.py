"""A timeline to numbers: how long each step takes, and how much of it the GPU is busy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.replay.engine import Timeline


@dataclass(frozen=True, slots=True)
class StepTime:
    """Medians over steps, in microseconds; of several ranks the GPU's times are those of the mean rank.

    Attributes:
        step_time_us: From the end of one step to the end of the next, CPU and GPU, on the last rank; of a single step,
            from its start.
        kernel_time_us: Time in which the GPU ran something of the step.
        exposed_comm_us: The part of it in which only collectives ran.
        waiting_us: The part of that in which they only waited for other ranks.
        steps: How many steps the medians are over.
        span_us: From the start of the first chosen step to the end of the last; unlike the median of a few steps,
            it never grows when something gets faster.
    """

    step_time_us: float
    kernel_time_us: float
    exposed_comm_us: float
    waiting_us: float
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
    table = of_all_ranks(per_step(timeline, kernels, steps)).join(chosen.select("step"), on="step", how="semi")
    steady = table.filter(~pl.col("first"))
    counted = steady if steady.height else table
    times = pl.col("time_ns", "busy_ns", "exposed_ns", "waiting_ns").median() / 1e3
    span_us = table.select((pl.col("end_ns").max() - pl.col("begin_ns").min()) / 1e3).item()
    step_us, busy_us, exposed_us, waiting_us = counted.select(times).row(0)
    return StepTime(step_us, busy_us, exposed_us, waiting_us, counted.height, span_us)


def per_step(timeline: Timeline, kernels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per step, or per rank and step.

    Returns:
        ``rank`` (if ``steps`` has it), ``step``, ``first``, ``begin_ns``, ``end_ns``, ``time_ns``, ``busy_ns``,
        ``exposed_ns``, ``waiting_ns``; in the order of ``steps``.
    """
    keys = _keys(steps)
    gpu = _gpu_time(timeline, kernels, keys)
    begin, end = _cpu_marks(timeline, steps.height)
    rows = (
        steps.select(*keys, begin=begin, cpu_end=end)
        .join(gpu, on=keys, how="left", maintain_order="left")
        .with_columns(begin_ns=pl.coalesce("begin", "gpu_begin"), end_ns=pl.max_horizontal("cpu_end", "gpu_end"))
    )
    place, before = pl.int_range(pl.len()), pl.col("end_ns").shift(1)
    if "rank" in keys:
        place, before = place.over("rank"), before.over("rank")
    return rows.with_columns(first=place == 0, before=before).select(
        *keys,
        "first",
        "begin_ns",
        "end_ns",
        time_ns=pl.col("end_ns") - pl.when("first").then("begin_ns").otherwise("before"),
        busy_ns=pl.col("busy_ns").fill_null(0),
        exposed_ns=pl.col("exposed_ns").fill_null(0),
        waiting_ns=pl.col("waiting_ns").fill_null(0),
    )


def _keys(steps: pl.DataFrame) -> list[str]:
    return ["rank", "step"] if "rank" in steps.columns else ["step"]


def of_all_ranks(table: pl.DataFrame) -> pl.DataFrame:
    """One row per step of the job: it lasts from the last rank's end of the one before to the last rank's end.

    Args:
        table: As :func:`per_step` gives it; of one rank it is returned as it is.
    """
    if "rank" not in table.columns:
        return table
    return (
        table.group_by("step", maintain_order=True)
        .agg(
            pl.col("first").all(),
            pl.col("begin_ns").min(),
            pl.col("end_ns").max(),
            pl.col("busy_ns", "exposed_ns", "waiting_ns").mean(),
        )
        .sort("begin_ns")
        .with_columns(time_ns=pl.col("end_ns") - pl.when("first").then("begin_ns").otherwise(pl.col("end_ns").shift(1)))
    )


def _cpu_marks(timeline: Timeline, steps: int) -> tuple[pl.Series, pl.Series]:
    """When each step began and ended on the CPU; null where the trace has no CPU events."""
    marks = timeline.start_ns[timeline.cpu - timeline.marks : timeline.cpu]
    if not timeline.marks:
        empty = pl.Series([None] * steps, dtype=pl.Int64)
        return empty, empty
    return pl.Series(marks[:steps]), pl.Series(marks[steps:])


def _gpu_time(timeline: Timeline, kernels: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Per step: when its GPU work began and ended, how long it ran, only collectives did, and these only waited."""
    work = kernels.select(
        *keys,
        start=timeline.activity_start_ns,
        end=timeline.activity_end_ns,
        works_from=timeline.activity_end_ns - timeline.work_ns,
        comm=pl.col("family") == "collective",
    ).drop_nulls("step")
    span = work.group_by(keys).agg(gpu_begin=pl.col("start").min(), gpu_end=pl.col("end").max())
    compute = work.filter(~pl.col("comm"))
    transfer = work.filter("comm").with_columns(start=pl.max_horizontal("start", "works_from"))
    lengths = {
        "busy_ns": union(work, keys),
        "compute_ns": union(compute, keys),
        "working_ns": union(pl.concat([compute, transfer]), keys),
    }
    for name, length in lengths.items():
        span = span.join(length.rename({"union_ns": name}), on=keys, how="left")
    return span.with_columns(
        exposed_ns=pl.col("busy_ns") - pl.col("compute_ns").fill_null(0),
        waiting_ns=pl.col("busy_ns") - pl.col("working_ns").fill_null(0),
    )


def union(intervals: pl.DataFrame, keys: Sequence[str] = ("step",)) -> pl.DataFrame:
    """Length of the union of ``start``, ``end`` intervals per step (``keys``): the keys, ``union_ns``."""
    ordered = intervals.sort(*keys, "start", "end")
    covered = pl.col("end").cum_max().shift(1).over(keys).fill_null(np.iinfo(np.int64).min)
    added = pl.col("end") - pl.max_horizontal("start", covered)
    return ordered.with_columns(added=added.clip(lower_bound=0)).group_by(keys).agg(union_ns=pl.col("added").sum())
