"""A timeline to numbers: how long each step takes, and how much of it the GPU is busy."""

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.replay.engine import Timeline

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER, FOREVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


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
    return Meter(kernels, steps, chosen).median(timeline)


def per_step(timeline: Timeline, kernels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per step, or per rank and step.

    Returns:
        ``rank`` (if ``steps`` has it), ``step``, ``first``, ``begin_ns``, ``end_ns``, ``time_ns``, ``busy_ns``,
        ``exposed_ns``, ``waiting_ns``; in the order of ``steps``. Without GPU work or marks of the CPU, a step has no
        times.
    """
    meter = Meter(kernels, steps, steps)
    each = meter.each(timeline)
    before = np.where(meter.first, each.begin_ns, np.roll(each.end_ns, 1))
    timed = each.known & (meter.first | np.roll(each.known, 1))
    known = [pl.when(pl.Series(each.known)).then(name).alias(name) for name in ("begin_ns", "end_ns")]
    columns = {"first": meter.first, "begin_ns": each.begin_ns, "end_ns": each.end_ns, "time_ns": each.end_ns - before}
    gpu = {"busy_ns": each.busy_ns, "exposed_ns": each.exposed_ns, "waiting_ns": each.waiting_ns}
    table = pl.DataFrame({**columns, **gpu}).with_columns(*known, time_ns=pl.when(pl.Series(timed)).then("time_ns"))
    return steps.select(_keys(steps)).hstack(table)


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


@dataclass(frozen=True, slots=True)
class Each:
    """Per row of the steps, when it ran and for how long the GPU ran something of it; times only where ``known``."""

    begin_ns: Ints
    end_ns: Ints
    busy_ns: Ints
    exposed_ns: Ints
    waiting_ns: Ints
    known: Bools


class Meter:
    """Measures timelines of one run; what they have in common is worked out once.

    Args:
        kernels: The kernel table.
        steps: All steps of the trace.
        chosen: Those to measure.
    """

    def __init__(self, kernels: pl.DataFrame, steps: pl.DataFrame, chosen: pl.DataFrame) -> None:
        self._rows = steps.height
        self._row = _step_rows(kernels, steps)
        self._launched = self._row < steps.height
        collective = (kernels["family"] == "collective").to_numpy()
        self._collective = collective if collective.any() else None
        place = pl.int_range(pl.len())
        first = steps.select(place.over("rank") == 0 if "rank" in steps.columns else place == 0)
        self.first: Bools = first.to_series().to_numpy()
        numbers = steps["step"].unique(maintain_order=True)
        self._step = steps["step"].replace_strict(numbers, range(len(numbers)), return_dtype=pl.Int64).to_numpy()
        self._chosen: Bools = numbers.is_in(chosen["step"].implode()).to_numpy()

    def median(self, timeline: Timeline) -> StepTime:
        """The median chosen step of a timeline, of all ranks together."""
        each = self.each(timeline)
        steps, ranks = self._chosen.size, np.bincount(self._step)
        begin, end = np.full(steps, FOREVER), np.full(steps, NEVER)
        np.minimum.at(begin, self._step[each.known], each.begin_ns[each.known])
        np.maximum.at(end, self._step[each.known], each.end_ns[each.known])
        first = np.bincount(self._step, self.first) == ranks
        in_time = np.argsort(begin, kind="stable")
        before = np.empty_like(end)
        before[in_time] = np.roll(end[in_time], 1)
        time = end - np.where(first, begin, before)
        steady = self._chosen & ~first
        counted = steady if steady.any() else self._chosen
        gpu_ns = (each.busy_ns, each.exposed_ns, each.waiting_ns)
        means = ((np.bincount(self._step, ns) / ranks)[counted] for ns in gpu_ns)
        busy, exposed, waiting = (float(np.median(ns)) / 1e3 for ns in means)
        known = begin != FOREVER
        return StepTime(
            step_time_us=float(np.median(time[counted & known])) / 1e3,
            kernel_time_us=busy,
            exposed_comm_us=exposed,
            waiting_us=waiting,
            steps=int(counted.sum()),
            span_us=float(end[self._chosen & known].max() - begin[self._chosen & known].min()) / 1e3,
        )

    def each(self, timeline: Timeline) -> Each:
        """Every step of every rank."""
        start, end = timeline.activity_start_ns, timeline.activity_end_ns
        order = np.argsort(start, kind="stable")

        def covered(begin: Ints, order: Ints, wanted: Bools) -> tuple[Ints, Ints, Ints]:
            return _cover(order, begin, end, self._row, wanted, self._rows)

        gpu_begin, gpu_end, busy_ns = covered(start, order, self._launched)
        exposed_ns, waiting_ns = np.zeros((2, self._rows), dtype=np.int64)
        if self._collective is not None:
            works_from = _works_from_ns(timeline, self._collective)
            exposed_ns = busy_ns - covered(start, order, self._launched & ~self._collective)[2]
            waiting_ns = busy_ns - covered(works_from, np.argsort(works_from, kind="stable"), self._launched)[2]
        if not timeline.marks:
            return Each(gpu_begin, gpu_end, busy_ns, exposed_ns, waiting_ns, gpu_begin <= gpu_end)
        marks = timeline.start_ns[timeline.cpu - timeline.marks : timeline.cpu]
        begin_ns, cpu_end = marks[: self._rows], marks[self._rows :]
        everywhere = np.ones(self._rows, dtype=np.bool_)
        return Each(begin_ns, np.maximum(cpu_end, gpu_end), busy_ns, exposed_ns, waiting_ns, everywhere)


def _keys(steps: pl.DataFrame) -> list[str]:
    return ["rank", "step"] if "rank" in steps.columns else ["step"]


def works_from_ns(timeline: Timeline, kernels: pl.DataFrame) -> Ints:
    """When each activity begins to work: a collective once the other ranks have come, all others when they start."""
    return _works_from_ns(timeline, (kernels["family"] == "collective").to_numpy())


def _works_from_ns(timeline: Timeline, collective: Bools) -> Ints:
    start, end = timeline.activity_start_ns, timeline.activity_end_ns
    works_from: Ints = np.where(collective, np.maximum(start, end - timeline.work_ns), start)
    return works_from


def _step_rows(kernels: pl.DataFrame, steps: pl.DataFrame) -> Ints:
    """The row of ``steps`` that each kernel belongs to; their number for kernels of none."""
    keys = _keys(steps)
    rows = steps.select(*keys, row=pl.int_range(pl.len(), dtype=pl.Int64))
    joined = kernels.select(keys).join(rows, on=keys, how="left", maintain_order="left")
    return joined["row"].fill_null(steps.height).to_numpy()


def cover(start: Ints, end: Ints, group: Ints, wanted: Bools, groups: int) -> tuple[Ints, Ints, Ints]:
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
    order: Ints, start: Ints, end: Ints, group: Ints, wanted: Bools, groups: int
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
