"""A timeline to numbers: how long each step takes, and how much of it the GPU is busy."""

from dataclasses import dataclass

import numba
import numpy as np
import polars as pl

from tracekit.arrays import Bools, Floats, Ints
from tracekit.errors import StepError
from tracekit.replay.engine import Timeline

NEVER, FOREVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class StepTime:
    """Medians over steps, in microseconds; of several ranks the GPU's times are those of the mean rank.

    Attributes:
        step_time_us: From the end of one step to the end of the next, CPU and GPU, on the last rank; of a single step,
            from its start, or from when the GPU was through with work from before.
        kernel_time_us: Time of it in which the GPU ran something, of whichever step.
        exposed_comm_us: The part of that in which only collectives ran.
        waiting_us: The part of that in which they only waited for other ranks.
        steps: How many steps the medians are over.
        span_us: All chosen steps together, from the start of the first step of all, else from the end of the one
            before, to the end of the last; of all steps, unlike their median, it never grows when something is faster.
    """

    step_time_us: float
    kernel_time_us: float
    exposed_comm_us: float
    waiting_us: float
    steps: int
    span_us: float

    @property
    def idle_us(self) -> float:
        """Time in which the GPU ran nothing."""
        return max(self.step_time_us - self.kernel_time_us, 0.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """What each step of a job took as measured and as replayed: puts the steps of other replays on the measured scale.

    Attributes:
        measured_ns: By step, in the order of the trace.
        replayed_ns: The same of the replay with the measured kernel times.
    """

    measured_ns: Floats
    replayed_ns: Floats

    def put(self, time_ns: Ints | Floats) -> Floats:
        """Put each step of a replay on the scale of the measured one: its measured time by the ratio of the replays.

        Where the first replay gives a step no time at all, it is longer or shorter by the difference.
        """
        given = self.replayed_ns > 0
        ratio = np.divide(time_ns, self.replayed_ns, out=np.ones_like(self.replayed_ns), where=given)
        return self.measured_ns * ratio + np.where(given, 0.0, time_ns - self.replayed_ns)


def per_step(timeline: Timeline, kernels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per step, or per rank and step.

    Returns:
        ``rank`` (if ``steps`` has it), ``step``, ``first``, ``begin_ns``, ``end_ns``, ``time_ns``, ``busy_ns``,
        ``exposed_ns``, ``waiting_ns``; in the order of ``steps``. Without GPU work or marks of the CPU, a step has no
        times.
    """
    meter = Meter(kernels, steps, steps)
    each = meter.each(timeline)
    timed = each.known & (meter.first | np.roll(each.known, 1))
    known = [pl.when(pl.Series(each.known)).then(name).alias(name) for name in ("begin_ns", "end_ns")]
    columns = {
        "first": meter.first,
        "begin_ns": each.begin_ns,
        "end_ns": each.end_ns,
        "time_ns": each.end_ns - each.before_ns,
    }
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
        .sort("end_ns")
        .with_columns(time_ns=pl.col("end_ns") - pl.when("first").then("begin_ns").otherwise(pl.col("end_ns").shift(1)))
    )


@dataclass(frozen=True, slots=True)
class Each:
    """Per row of the steps, when it ran and for how long the GPU ran something then; times only where ``known``.

    A step runs from the end of its rank's step before, the first from its own begin: of its mark, or when the GPU was
    through with work from before. But no first step is shorter than its mark.
    """

    begin_ns: Ints
    before_ns: Ints
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

    Attributes:
        numbers: The steps of the job, as they first come.
        first: Whether each row of ``steps`` is the first of its rank.
    """

    def __init__(self, kernels: pl.DataFrame, steps: pl.DataFrame, chosen: pl.DataFrame) -> None:
        self._rows = steps.height
        self._row = row = _step_rows(kernels, steps)
        self._by_step = np.argsort(row, kind="stable")[: int((row < steps.height).sum())]
        self._launching, self._from = np.unique(row[self._by_step], return_index=True)
        collective = (kernels["family"] == "collective").to_numpy()
        self._collective = collective if collective.any() else None
        place = pl.int_range(pl.len())
        first = steps.select(place.over("rank") == 0 if "rank" in steps.columns else place == 0)
        self.first: Bools = first.to_series().to_numpy()
        self._windows = np.append(np.flatnonzero(self.first), self._rows)
        self._rank = _ranks(kernels, steps)
        self._from_before = _from_before(kernels, self._rank, row, steps, np.flatnonzero(self.first))
        numbers = steps["step"].unique(maintain_order=True)
        self.numbers: list[int] = numbers.to_list()
        self._step = steps["step"].replace_strict(numbers, range(len(numbers)), return_dtype=pl.Int64).to_numpy()
        self._chosen: Bools = numbers.is_in(chosen["step"].implode()).to_numpy()

    def median(self, timeline: Timeline, scale: Scale | None = None, longer: Floats | float = 1.0) -> StepTime:
        """The median chosen step of a timeline, of all ranks together.

        The first of several steps starts with an empty queue, so it counts only if no other is chosen.

        Args:
            timeline: The timeline.
            scale: Puts each step on the scale of the measured one; None leaves it as it is in the timeline.
            longer: Factor on the time of each step besides.

        Raises:
            StepError: No chosen step has a beginning.
        """
        each = self.each(timeline)
        ranks = np.bincount(self._step)
        time, known = self._of_job(each.begin_ns, each.end_ns, each.known)
        if not (self._chosen & known).any():
            raise StepError("nothing ran on the GPU in the steps to measure.", "Choose others by --steps.")
        counted = self._counted(known)
        gpu_ns = (each.busy_ns, each.exposed_ns, each.waiting_ns)
        means = ((np.bincount(self._step, ns) / ranks)[counted] for ns in gpu_ns)
        busy, exposed, waiting = (float(np.median(ns)) / 1e3 for ns in means)
        step = (time if scale is None else scale.put(time)) * longer
        return StepTime(
            step_time_us=float(np.median(step[counted & known])) / 1e3,
            kernel_time_us=busy,
            exposed_comm_us=exposed,
            waiting_us=waiting,
            steps=int(counted.sum()),
            span_us=float(time[self._chosen & known].sum()) / 1e3,
        )

    def scale(self, recorded: Timeline, replayed: Timeline) -> Scale:
        """The scale that the steps of a run are measured on.

        Args:
            recorded: The measured timeline.
            replayed: The replay with the measured kernel times.
        """
        each = (self._of_job(*self._spans(timeline)) for timeline in (recorded, replayed))
        return Scale(*(np.where(known, time, 0).astype(np.float64) for time, known in each))

    def _of_job(self, begin_ns: Ints, end_ns: Ints, known: Bools) -> tuple[Ints, Bools]:
        """How long each step of the job takes, and whether that is known; arguments as of :class:`Each`."""
        steps = self._chosen.size
        begin, end = np.full(steps, FOREVER), np.full(steps, NEVER)
        np.minimum.at(begin, self._step[known], begin_ns[known])
        np.maximum.at(end, self._step[known], end_ns[known])
        in_time = np.argsort(begin, kind="stable")
        before = np.empty_like(end)
        before[in_time] = np.roll(end[in_time], 1)
        return end - np.where(self._firsts(), begin, before), begin != FOREVER

    def median_us(self, kernel_ns: Ints) -> float:
        """What each kernel has of something, summed in the median chosen step, of several ranks in the mean."""
        summed = np.bincount(self._row, kernel_ns, minlength=self._rows + 1)[: self._rows]
        each = np.bincount(self._step, summed) / np.bincount(self._step)
        return float(np.median(each[self._counted(np.ones_like(self._chosen))])) / 1e3

    def _firsts(self) -> Bools:
        """Which steps are the first of every rank that has them."""
        firsts: Bools = np.bincount(self._step, self.first) == np.bincount(self._step)
        return firsts

    def _counted(self, known: Bools) -> Bools:
        """The chosen steps, without the first where another one is ``known``."""
        steady = self._chosen & ~self._firsts()
        return steady if (steady & known).any() else self._chosen

    def each(self, timeline: Timeline) -> Each:
        """Every step of every rank."""
        start, end = timeline.activity_start_ns, timeline.activity_end_ns
        begin_ns, end_ns, known = self._spans(timeline)
        before_ns = np.where(self.first, begin_ns, np.roll(end_ns, 1))
        opens = np.where(np.roll(known, 1), before_ns, begin_ns)

        def covered(begin: Ints, wanted: Bools) -> Ints:
            order = np.argsort(begin, kind="stable")
            return _cover(order[wanted[order]], begin, end, self._rank, opens, end_ns, self._windows)

        everything = np.ones(start.size, dtype=np.bool_)
        busy_ns = covered(start, everything)
        exposed_ns, waiting_ns = np.zeros((2, self._rows), dtype=np.int64)
        if self._collective is not None:
            exposed_ns = busy_ns - covered(start, ~self._collective)
            waiting_ns = busy_ns - covered(_works_from_ns(timeline, self._collective), everything)
        return Each(begin_ns, before_ns, end_ns, busy_ns, exposed_ns, waiting_ns, known)

    def _spans(self, timeline: Timeline) -> tuple[Ints, Ints, Bools]:
        """Begin and end of every step, and whether it has any."""
        begin, end = np.full(self._rows, FOREVER), np.full(self._rows, NEVER)
        if self._by_step.size:
            begin[self._launching] = np.minimum.reduceat(timeline.activity_start_ns[self._by_step], self._from)
            end[self._launching] = np.maximum.reduceat(timeline.activity_end_ns[self._by_step], self._from)
        if not timeline.marks:
            known = begin <= end
            return begin, self._in_order(timeline, begin, end, known), known
        marks = timeline.start_ns[timeline.cpu - timeline.marks : timeline.cpu]
        mark, least, known = marks[: self._rows], marks[self._rows :], np.ones(self._rows, dtype=np.bool_)
        ended = self._in_order(timeline, least, np.maximum(least, end), known)
        return np.maximum(mark, self._free(timeline, ended - (least - mark))), ended, known

    def _free(self, timeline: Timeline, latest: Ints) -> Ints:
        """When each row's rank was through with work from before its first step, at ``latest`` of that step's row."""
        through = _last_ends(timeline.activity_end_ns, self._rank, self._from_before, self._windows.size - 1)
        free: Ints = np.minimum(through, latest[self.first])[np.cumsum(self.first) - 1]
        return free

    def _in_order(self, timeline: Timeline, least: Ints, end: Ints, known: Bools) -> Ints:
        """The ends, none after that of the next step: work of a step that outlasts the next one isn't what it takes.

        Such as a copy of all parameters to the host, beside the steps that follow.

        Args:
            timeline: The timeline.
            least: When each step ends at the earliest.
            end: When all of its work has ended.
            known: Which steps have times.
        """
        follows = known[1:] & known[:-1] & ~self.first[1:]
        if not (follows & (end[:-1] > end[1:])).any():
            return end
        ordered = end.copy()
        for row in np.flatnonzero(follows)[::-1].tolist():
            if ordered[row] > ordered[row + 1]:
                ends = timeline.activity_end_ns[self._activities_of(row)]
                latest = ends[ends <= ordered[row + 1]].max(initial=least[row])
                ordered[row] = min(latest, ordered[row + 1])
        return ordered

    def _activities_of(self, row: int) -> Ints:
        """What a step launched."""
        first, last = np.searchsorted(self._launching, (row, row + 1))
        bounds = np.append(self._from, self._by_step.size)
        return self._by_step[bounds[first] : bounds[last]]


def _keys(steps: pl.DataFrame) -> list[str]:
    return ["rank", "step"] if "rank" in steps.columns else ["step"]


def works_from_ns(timeline: Timeline, kernels: pl.DataFrame) -> Ints:
    """When each activity begins to work: a collective once the other ranks have come, all others when they start."""
    return _works_from_ns(timeline, (kernels["family"] == "collective").to_numpy())


def _works_from_ns(timeline: Timeline, collective: Bools) -> Ints:
    start, end = timeline.activity_start_ns, timeline.activity_end_ns
    works_from: Ints = np.where(collective, np.maximum(start, end - timeline.work_ns), start)
    return works_from


def _ranks(kernels: pl.DataFrame, steps: pl.DataFrame) -> Ints:
    """The place of each kernel's rank among those of ``steps``."""
    if "rank" not in steps.columns:
        return np.zeros(kernels.height, dtype=np.int64)
    ranks = steps["rank"].unique(maintain_order=True)
    return kernels["rank"].replace_strict(ranks, range(len(ranks)), return_dtype=pl.Int64).to_numpy()


def _from_before(kernels: pl.DataFrame, rank: Ints, row: Ints, steps: pl.DataFrame, firsts: Ints) -> Ints:
    """Activities of no step that began before the first one of any on their rank.

    Of several ranks only where they kept the rank's first step waiting as measured. Elsewhere it counts from its mark,
    in every replay: what makes one rank's step longer would else make the job's begin later.

    Args:
        kernels: The kernel table.
        rank: The place of each kernel's rank.
        row: The row of ``steps`` that each kernel belongs to; their number for kernels of none.
        steps: All steps of the trace.
        firsts: The row of each rank's first one.
    """
    start = kernels["ts_ns"].to_numpy()
    in_steps = row < steps.height
    began = np.full(firsts.size, FOREVER)
    np.minimum.at(began, rank[in_steps], start[in_steps])
    found = np.flatnonzero(~in_steps & (start < began[rank]))
    if firsts.size == 1:
        return found
    end = start + kernels["dur_ns"].to_numpy()
    through = _last_ends(end, rank, found, firsts.size)
    ended = _last_ends(end, rank, np.flatnonzero(row == firsts[rank]), firsts.size)
    mark, least = (steps[edge].to_numpy()[firsts] for edge in ("start_ns", "end_ns"))
    waited = np.maximum(ended, least) - np.maximum(through, mark) >= least - mark
    kept: Ints = found[waited[rank[found]]]
    return kept


def _last_ends(end: Ints, rank: Ints, chosen: Ints, ranks: int) -> Ints:
    """When the last of the chosen activities of each rank ended; ``NEVER`` without one."""
    last = np.full(ranks, NEVER)
    np.maximum.at(last, rank[chosen], end[chosen])
    return last


def _step_rows(kernels: pl.DataFrame, steps: pl.DataFrame) -> Ints:
    """The row of ``steps`` that each kernel belongs to; their number for kernels of none."""
    keys = _keys(steps)
    rows = steps.select(*keys, row=pl.int_range(pl.len(), dtype=pl.Int64))
    joined = kernels.select(keys).join(rows, on=keys, how="left", maintain_order="left")
    return joined["row"].fill_null(steps.height).to_numpy()


@numba.njit(cache=True)
def _cover(
    order: Ints, start: Ints, end: Ints, rank: Ints, opens: Ints, closes: Ints, first: Ints
) -> Ints:  # pragma: no cover - compiled
    """How much of each window the union of its rank's intervals covers.

    Args:
        order: The intervals that count, by start.
        start: Where each interval begins.
        end: Where it ends.
        rank: The rank of each.
        opens: Where the windows begin; by rank, and within one in order of time.
        closes: Where they end.
        first: Where each rank's windows begin; one entry more than there are ranks.
    """
    length = np.zeros(opens.size, dtype=np.int64)
    window = first[:-1].copy()
    reached = np.full(first.size - 1, np.iinfo(np.int64).min, dtype=np.int64)
    for row in order:
        mine = rank[row]
        begin, until = max(start[row], reached[mine]), end[row]
        if until <= begin:
            continue
        reached[mine] = until
        while window[mine] < first[mine + 1] and closes[window[mine]] <= begin:
            window[mine] += 1
        for at in range(window[mine], first[mine + 1]):
            if opens[at] >= until:
                break
            length[at] += max(min(until, closes[at]) - max(begin, opens[at]), 0)
    return length
