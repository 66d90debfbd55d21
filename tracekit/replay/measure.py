"""A timeline to numbers: how long each step takes, and how much of it the GPU is busy."""

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.replay.engine import Timeline

Ints = npt.NDArray[np.int64]


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
    begin, end = _cpu_marks(timeline, steps.height)
    rows = (
        steps.select(*keys, begin=begin, cpu_end=end)
        .hstack(_gpu_time(timeline, kernels, steps))
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
        busy_ns="busy_ns",
        exposed_ns="exposed_ns",
        waiting_ns="waiting_ns",
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


def _gpu_time(timeline: Timeline, kernels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Per row of ``steps``: when its GPU work began and ended, how long it ran, collectives alone, or waiting."""
    start, end = timeline.activity_start_ns, timeline.activity_end_ns
    group = _step_rows(kernels, steps)
    launched = group < steps.height
    begin_ns, end_ns, busy_ns = cover(start, end, group, launched, steps.height)
    exposed_ns, waiting_ns = np.zeros((2, steps.height), dtype=np.int64)
    collective = (kernels["family"] == "collective").to_numpy()
    if collective.any():
        works_from = works_from_ns(timeline, kernels)
        exposed_ns = busy_ns - cover(start, end, group, launched & ~collective, steps.height)[2]
        waiting_ns = busy_ns - cover(works_from, end, group, launched, steps.height)[2]
    ran = pl.col("gpu_begin") <= pl.col("gpu_end")
    return pl.DataFrame(
        {"gpu_begin": begin_ns, "gpu_end": end_ns}
        | {"busy_ns": busy_ns, "exposed_ns": exposed_ns, "waiting_ns": waiting_ns}
    ).with_columns(pl.when(ran).then(pl.col("gpu_begin", "gpu_end")))


def works_from_ns(timeline: Timeline, kernels: pl.DataFrame) -> Ints:
    """When each activity begins to work: a collective once the other ranks have come, all others when they start."""
    start, end = timeline.activity_start_ns, timeline.activity_end_ns
    works_from: Ints = np.where(kernels["family"] == "collective", np.maximum(start, end - timeline.work_ns), start)
    return works_from


def _step_rows(kernels: pl.DataFrame, steps: pl.DataFrame) -> Ints:
    """The row of ``steps`` that each kernel belongs to; their number for kernels of none."""
    keys = _keys(steps)
    rows = steps.select(*keys, row=pl.int_range(pl.len(), dtype=pl.Int64))
    joined = kernels.select(keys).join(rows, on=keys, how="left", maintain_order="left")
    return joined["row"].fill_null(steps.height).to_numpy()


def cover(start: Ints, end: Ints, group: Ints, wanted: npt.NDArray[np.bool_], groups: int) -> tuple[Ints, Ints, Ints]:
    """Begin, end and length of the union of the wanted intervals of each group; without any it ends before it begins.

    Args:
        start: Where the intervals begin.
        end: Where they end.
        group: The group of each.
        wanted: Whether it counts.
        groups: How many groups there are.
    """
    return _cover(np.argsort(start, kind="stable"), start, end, group, wanted, groups)


@numba.njit(cache=True)
def _cover(
    order: Ints, start: Ints, end: Ints, group: Ints, wanted: npt.NDArray[np.bool_], groups: int
) -> tuple[Ints, Ints, Ints]:  # pragma: no cover - compiled
    begin = np.full(groups, np.iinfo(np.int64).max, dtype=np.int64)
    reached = np.full(groups, np.iinfo(np.int64).min, dtype=np.int64)
    length = np.zeros(groups, dtype=np.int64)
    for row in order:
        if wanted[row]:
            mine = group[row]
            begin[mine] = min(begin[mine], start[row])
            if end[row] > reached[mine]:
                length[mine] += end[row] - max(start[row], reached[mine])
                reached[mine] = end[row]
    return begin, reached, length
