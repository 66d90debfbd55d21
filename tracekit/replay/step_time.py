"""Measure the steps of a timeline: their durations, and how long the GPU is busy in each."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import NO_NUMBER, Bools, Floats, Ints, find_nulls, number_pairs
from tracekit.errors import StepError
from tracekit.messages import Message
from tracekit.messages.traces import STEPS_OVERLAP, STEPS_WITHOUT_GPU_WORK
from tracekit.replay.engine import Timeline
from tracekit.replay.gpu_time import MAX_TIME_NS, MIN_TIME_NS, EarlierWork, measure_coverage
from tracekit.workload.kernel_table import number_gpus


@dataclass(frozen=True, slots=True)
class StepScale:
    """Measured and self-replayed time of each step of a job.

    Attributes:
        measured_ns: Measured time by step, in the order of the trace.
        replayed_ns: Time of the same steps in the replay with the measured kernel times.
    """

    measured_ns: Floats
    replayed_ns: Floats

    def apply(self, time_ns: Ints | Floats) -> Floats:
        """Scale the steps of another replay: the measured time times the ratio of the two replays.

        Where the self-replay gives a step no time, the difference is added instead.

        Example: a step measured at 110, self-replayed at 100 and replayed at 50 becomes 110 * 50 / 100 = 55.
        """
        given = self.replayed_ns > 0
        ratio = np.divide(time_ns, self.replayed_ns, out=np.ones_like(self.replayed_ns), where=given)
        return self.measured_ns * ratio + np.where(given, 0.0, time_ns - self.replayed_ns)


STEP_KEYS = ("rank", "step")

MAX_BUSY_FRACTION = 1.01
"""Of a step of several ranks: each rank's busy time is that in its own step, which may begin and end a bit apart."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Medians over steps, in microseconds; for several ranks the GPU times are means over ranks.

    Attributes:
        step_time_us: From the end of one step to the end of the next, CPU and GPU, on the last rank. A single step, and
            one before which steps weren't recorded, is measured from its start, or from when the GPU had finished
            earlier work.
        kernel_time_us: Part of the step time in which the GPU runs anything, of any step.
        exposed_comm_us: Part of the kernel time in which only collectives run.
        waiting_us: Part of the exposed time in which these collectives only wait for other ranks.
        steps: Number of steps that the medians are over.
        span_us: Duration of all chosen steps together. It begins at the end of the step before them, or at the start of
            the trace's first step. Unlike the median step, the span never grows when something becomes faster.
        mean_us: The mean step, by which a run of many steps lasts and costs: where gradients are accumulated, say, the
            median step doesn't update the parameters.
    """

    step_time_us: float
    kernel_time_us: float
    exposed_comm_us: float
    waiting_us: float
    steps: int
    span_us: float
    mean_us: float

    @property
    def idle_us(self) -> float:
        """Part of the step time in which the GPU runs nothing."""
        return max(self.step_time_us - self.kernel_time_us, 0.0)

    @property
    def busy_pct(self) -> float | None:
        """Percent of the step in which the GPU runs anything; None for a step without a time."""
        return 100 * self.kernel_time_us / self.step_time_us if self.step_time_us else None

    def list_doubts(self) -> list[Message]:
        """List why the figures contradict each other."""
        if self.kernel_time_us <= MAX_BUSY_FRACTION * self.step_time_us:
            return []
        return [STEPS_OVERLAP(kernel_us=self.kernel_time_us, step_us=self.step_time_us)]


def merge_ranks(table: pl.DataFrame) -> pl.DataFrame:
    """Merge the ranks of a table: one row per step, from the last rank's previous end to the last rank's end.

    Args:
        table: Of :meth:`StepTimer.tabulate`; a table of one rank keeps its times.
    """
    if table["rank"].n_unique() == 1:
        return table.drop("rank")
    return (
        table.group_by("step", maintain_order=True)
        .agg(
            pl.col("first", "begins_at_mark").all(),
            pl.col("begin_ns").min(),
            pl.col("end_ns").max(),
            pl.col("busy_ns", "exposed_ns", "waiting_ns").mean(),
        )
        .sort("end_ns")
        .with_columns(time_ns=pl.col("end_ns") - _choose_begin(pl.col("end_ns").shift(1)))
    )


def _choose_begin(previous_end: pl.Expr) -> pl.Expr:
    """Choose from when a step of several ranks is measured."""
    begun = pl.max_horizontal("begin_ns", previous_end)
    return pl.when("first").then("begin_ns").when("begins_at_mark").then(begun).otherwise(previous_end)


@dataclass(frozen=True, slots=True)
class StepSpans:
    """Start and end of every row of the steps; valid only where ``has_times``.

    A step lasts from the end of the rank's previous step to its own end. A rank's first step begins at its mark, or
    when the GPU has finished earlier work, and so does one before which steps weren't recorded. A first step is never
    shorter than the host alone takes for its mark.
    """

    begin_ns: Ints
    previous_end_ns: Ints
    end_ns: Ints
    has_times: Bools
    has_duration: Bools


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Spans and GPU times of every row of the steps; without GPU times where nobody asked for them."""

    spans: StepSpans
    busy_ns: Ints
    exposed_ns: Ints
    waiting_ns: Ints

    @classmethod
    def without_gpu(cls, spans: StepSpans) -> "StepTimes":
        """Return the spans alone."""
        nothing = np.empty(0, np.int64)
        return cls(spans, nothing, nothing, nothing)


class JobSteps:
    """The steps of a job, of which each rank has its own begin and end.

    Attributes:
        numbers: Step numbers of the job, in order of appearance.
        place: For each row of ``steps`` the place of its number among these.
        first: Marks the rows of ``steps`` that are the first of their rank.
        begins_at_mark: Marks the others before which steps weren't recorded.
        is_chosen: Marks the rows of ``steps`` to measure.

    A serving engine's last batch is recorded without the time to the next one, so that no mean counts it.
    """

    def __init__(self, steps: pl.DataFrame, chosen: pl.DataFrame) -> None:
        self.first: Bools = np.zeros(steps.height, np.bool_)
        self.first[np.unique(steps["rank"].to_numpy(), return_index=True)[1]] = True
        self.begins_at_mark: Bools = steps["begins_at_mark"].to_numpy() & ~self.first
        numbers, self.place = _number_in_order(steps["step"].to_numpy())
        self.numbers: list[int] = numbers.tolist()
        # Whether a step is the first step of every rank that has it.
        self._is_first_step: Bools = self._hold_for_all(self.first)
        self._begins_at_mark: Bools = self._hold_for_all(self.first | self.begins_at_mark)
        self._chosen: Bools = np.isin(numbers, chosen["step"].to_numpy())
        last = np.append(self.first[1:], True)
        self._is_cut: Bools = self._hold_for_all(last & ~find_nulls(steps["tokens"]))
        self.is_chosen: Bools = self._chosen[self.place]

    def _hold_for_all(self, rows: Bools) -> Bools:
        """Return for which steps something holds on every rank."""
        return np.asarray(np.bincount(self.place, rows) == np.bincount(self.place))

    def compute_median(self, each: StepTimes, scale: StepScale | None = None, longer: Floats | float = 1.0) -> StepTime:
        """Compute the median chosen step, of all ranks together.

        Args:
            each: Times of every step of every rank.
            scale: Scales each step to its measured time; None keeps the step times.
            longer: Additional factor on the time of each step.

        Raises:
            StepError: No chosen step has times.
        """
        ranks = np.bincount(self.place)
        time, known = self.merge_ranks(each.spans)
        if not (self._chosen & known).any():
            raise StepError(STEPS_WITHOUT_GPU_WORK())
        gpu_ns = (each.busy_ns, each.exposed_ns, each.waiting_ns)
        means = ((np.bincount(self.place, ns) / ranks)[self._chosen] for ns in gpu_ns)
        busy, exposed, waiting = (float(np.median(ns)) / 1e3 for ns in means)
        step = (time if scale is None else scale.apply(time)) * longer
        counted = self._chosen & known
        whole = counted & ~self._is_cut
        return StepTime(
            step_time_us=float(np.median(step[counted])) / 1e3,
            kernel_time_us=busy,
            exposed_comm_us=exposed,
            waiting_us=waiting,
            steps=int(self._chosen.sum()),
            span_us=float(time[counted].sum()) / 1e3,
            mean_us=float(np.mean(step[whole if whole.any() else counted])) / 1e3,
        )

    def compute_median_step_us(self, spans: StepSpans, scale: StepScale) -> float:
        """Compute the step time of :meth:`compute_median` alone, in a fraction of the time."""
        time, known = self.merge_ranks(spans)
        return float(np.median(scale.apply(time)[self._chosen & known])) / 1e3

    def measure_ns(self, spans: StepSpans) -> Floats:
        """Return the time of each step of the job, all ranks together; 0 where it is unknown."""
        time, known = self.merge_ranks(spans)
        return np.where(known, time, 0).astype(np.float64)

    def merge_ranks(self, spans: StepSpans) -> tuple[Ints, Bools]:
        """Merge the ranks: the time of each step of the job, and whether it is known."""
        steps, known = self._chosen.size, spans.has_times
        begin, end = np.full(steps, MAX_TIME_NS), np.full(steps, MIN_TIME_NS)
        np.minimum.at(begin, self.place[known], spans.begin_ns[known])
        np.maximum.at(end, self.place[known], spans.end_ns[known])
        in_time = np.argsort(begin, kind="stable")
        before = np.empty_like(end)
        before[in_time] = np.roll(end[in_time], 1)
        begun = np.where(self._begins_at_mark, np.maximum(begin, before), before)
        return end - np.where(self._is_first_step, begin, begun), begin != MAX_TIME_NS

    def compute_median_sum_us(self, gpu_ns: Floats, job_ns: Floats | Ints | float = 0.0) -> float:
        """Sum a time over the job, and return the median chosen step of the mean GPU, or rank, in microseconds.

        Args:
            gpu_ns: The time of each row of the steps; or for each GPU of a rank, NaN in rows whose rank hasn't it.
            job_ns: What is added to each step of the job.
        """
        times = np.atleast_2d(gpu_ns)
        exists, step = ~np.isnan(times).ravel(), np.tile(self.place, times.shape[0])
        count = np.bincount(step, exists, self._chosen.size)
        summed = job_ns + np.bincount(step, np.nan_to_num(times).ravel(), self._chosen.size)
        return float(np.median((summed / np.maximum(count, 1))[self._chosen])) / 1e3

    def find_ends(self, spans: StepSpans) -> Ints:
        """Find when each step of the job ends, on its last rank."""
        end = np.full(self._chosen.size, MIN_TIME_NS)
        np.maximum.at(end, self.place[spans.has_times], spans.end_ns[spans.has_times])
        return end


def tabulate_steps(steps: pl.DataFrame, job: JobSteps, each: StepTimes) -> pl.DataFrame:
    """Tabulate the times of all steps, as :meth:`StepTimer.tabulate` does; ``steps`` has their ranks and numbers."""
    spans = each.spans
    columns = {
        "first": job.first,
        "begins_at_mark": job.begins_at_mark,
        "begin_ns": pl.Series(spans.begin_ns).set(pl.Series(~spans.has_times), None),
        "end_ns": pl.Series(spans.end_ns).set(pl.Series(~spans.has_times), None),
        "time_ns": pl.Series(spans.end_ns - spans.previous_end_ns).set(pl.Series(~spans.has_duration), None),
    }
    gpu = {"busy_ns": each.busy_ns, "exposed_ns": each.exposed_ns, "waiting_ns": each.waiting_ns}
    return steps.select(STEP_KEYS).hstack(pl.DataFrame({**columns, **gpu}))


class StepTimer:
    """Measures the steps of one run's timelines; what does not depend on the timeline is computed once.

    Args:
        kernels: The kernel table.
        steps: All steps of the trace.
        chosen: Those to measure.
        is_one_of_several: Whether these are the kernels and steps of one rank of several.

    Attributes:
        job: The steps of all ranks together.
        gpu: The GPU of each kernel among those of its rank.
    """

    def __init__(
        self, kernels: pl.DataFrame, steps: pl.DataFrame, chosen: pl.DataFrame, *, is_one_of_several: bool = False
    ) -> None:
        self.job = JobSteps(steps, chosen)
        self._rows = steps.height
        self._keys = steps.select(STEP_KEYS)
        self._row = row = _index_step_rows(kernels, steps)
        self._by_step = np.argsort(row, kind="stable")[: int((row < steps.height).sum())]
        self._launching, self._from = np.unique(row[self._by_step], return_index=True)
        self.gpu: Ints = number_gpus(kernels)
        collective = (kernels["family"] == "collective").to_numpy()
        self._collective = collective if collective.any() else None
        firsts = np.flatnonzero(self.job.first)
        self._windows = np.append(firsts, self._rows)
        self._rank = _index_ranks(kernels, steps)
        several = is_one_of_several or firsts.size > 1
        self._earlier = EarlierWork(kernels, self._rank, row, steps, firsts, is_of_several=several)

    @property
    def numbers(self) -> list[int]:
        """Step numbers of the job, in order of appearance."""
        return self.job.numbers

    @property
    def step_place(self) -> Ints:
        """Place of each kernel's step among these numbers; -1 outside all steps."""
        return np.append(self.job.place, -1)[self._row]

    @property
    def is_chosen(self) -> Bools:
        """Which rows of the steps are measured."""
        return self.job.is_chosen

    def compute_median(
        self, timeline: Timeline, scale: StepScale | None = None, longer: Floats | float = 1.0
    ) -> StepTime:
        """Compute the median chosen step of a timeline, of all ranks together.

        Args:
            timeline: The timeline.
            scale: Scales each step to its measured time; None keeps the step times of the timeline.
            longer: Additional factor on the time of each step.

        Raises:
            StepError: No chosen step has times.
        """
        return self.job.compute_median(self.compute_step_times(timeline), scale, longer)

    def compute_median_step_us(self, timeline: Timeline, scale: StepScale) -> float:
        """Compute the step time of :meth:`compute_median` alone, in a fraction of the time."""
        return self.job.compute_median_step_us(self.compute_step_spans(timeline), scale)

    def tabulate(self, timeline: Timeline) -> pl.DataFrame:
        """Tabulate all steps of a timeline: one row per step, or per rank and step.

        Returns:
            ``rank`` (if the steps have it), ``step``, ``first``, ``begins_at_mark``, ``begin_ns``, ``end_ns``,
            ``time_ns``, ``busy_ns``, ``exposed_ns``, ``waiting_ns``, in the order of the steps. Times are null for a
            step without GPU work and without marks on the CPU.
        """
        return tabulate_steps(self._keys, self.job, self.compute_step_times(timeline))

    def measure_job_steps_ns(self, timeline: Timeline) -> Floats:
        """Return the time of each step of the job, all ranks together; 0 where it is unknown."""
        return self.job.measure_ns(self.compute_step_spans(timeline))

    def compute_median_sum_us(self, kernel_ns: Ints) -> float:
        """Sum a per-kernel time over each chosen step of the mean GPU, and return the median step in microseconds."""
        return self.job.compute_median_sum_us(self.sum_by_gpu(kernel_ns))

    @property
    def gpus_per_rank(self) -> int:
        """GPUs that a rank drives; of several ranks the one that drives most."""
        return int(self.gpu.max(initial=0)) + 1

    def sum_by_gpu(self, kernel_ns: Ints) -> Floats:
        """Sum a per-kernel time over each row of the steps, on each GPU of a rank; NaN where a rank hasn't that GPU."""
        gpus = self.gpus_per_rank
        summed = np.array([self._sum_by_step(np.where(self.gpu == gpu, kernel_ns, 0)) for gpu in range(gpus)])
        counts = np.ones(self._windows.size - 1, dtype=np.int64)
        np.maximum.at(counts, self._rank, self.gpu + 1)
        of_row = np.repeat(counts, np.diff(self._windows))
        return np.where(np.arange(gpus)[:, None] < of_row, summed, np.nan)

    def _sum_by_step(self, kernel_ns: Ints) -> Floats:
        """Sum a per-kernel time over each row of the steps, on all GPUs of a rank together."""
        summed = np.bincount(self._row, kernel_ns, minlength=self._rows + 1)[: self._rows]
        return summed.astype(np.float64)

    def compute_median_wait_us(self, timeline: Timeline, node_ns: Ints) -> float:
        """Sum a time of each node over each chosen step of the mean rank, and return the median step in microseconds.

        A node of the host, which has no step of its own, counts to the step of the job in which it ends.
        """
        hosts = timeline.host_node_count
        spans = self.compute_step_spans(timeline)
        end = self.job.find_ends(spans)
        in_time = np.argsort(end, kind="stable")
        place = np.searchsorted(end[in_time], timeline.end_ns[:hosts])
        begun = timeline.end_ns[:hosts] > spans.begin_ns.min()
        counted = begun & (place < end.size)
        of_host = np.bincount(in_time[place[counted]], node_ns[:hosts][counted], minlength=end.size)
        return self.job.compute_median_sum_us(self._sum_by_step(node_ns[hosts:]), of_host)

    def compute_step_times(self, timeline: Timeline) -> StepTimes:
        """Compute the times of every step of every rank."""
        start, end = timeline.activity_start_ns, timeline.activity_end_ns
        spans = self.compute_step_spans(timeline)
        opens = np.where(np.roll(spans.has_times, 1), spans.previous_end_ns, spans.begin_ns)

        def covered(begin: Ints, wanted: Bools) -> Ints:
            order = np.argsort(begin, kind="stable")
            return measure_coverage(order[wanted[order]], begin, end, self._rank, opens, spans.end_ns, self._windows)

        everything = np.ones(start.size, dtype=np.bool_)
        busy_ns = covered(start, everything)
        exposed_ns, waiting_ns = np.zeros((2, self._rows), dtype=np.int64)
        if self._collective is not None:
            exposed_ns = busy_ns - covered(start, ~self._collective)
            waiting_ns = busy_ns - covered(_compute_work_start_ns(timeline, self._collective), everything)
        return StepTimes(spans, busy_ns, exposed_ns, waiting_ns)

    def compute_step_spans(self, timeline: Timeline) -> StepSpans:
        """Compute start and end of every step of every rank, without its GPU times."""
        begin_ns, end_ns, known = self._find_step_bounds(timeline)
        before, anew = np.roll(end_ns, 1), self.job.begins_at_mark
        previous_ns = np.where(self.job.first, begin_ns, np.where(anew, np.maximum(begin_ns, before), before))
        return StepSpans(begin_ns, previous_ns, end_ns, known, known & (self.job.first | anew | np.roll(known, 1)))

    def _find_step_bounds(self, timeline: Timeline) -> tuple[Ints, Ints, Bools]:
        """Return start and end of every step, and whether the step has times."""
        begin, end = np.full(self._rows, MAX_TIME_NS), np.full(self._rows, MIN_TIME_NS)
        if self._by_step.size:
            begin[self._launching] = np.minimum.reduceat(timeline.activity_start_ns[self._by_step], self._from)
            end[self._launching] = np.maximum.reduceat(timeline.activity_end_ns[self._by_step], self._from)
        if not timeline.mark_count:
            known = begin <= end
            return begin, self._order_step_ends(timeline, begin, end, known), known
        marks = timeline.start_ns[timeline.host_node_count - timeline.mark_count : timeline.host_node_count]
        mark, least, known = marks[: self._rows], marks[self._rows :], np.ones(self._rows, dtype=np.bool_)
        ended = self._order_step_ends(timeline, least, np.maximum(least, end), known)
        free = self._earlier.compute_free_times(timeline, mark, ended)
        return np.maximum(mark, free[np.cumsum(self.job.first) - 1]), ended, known

    def _order_step_ends(self, timeline: Timeline, least: Ints, end: Ints, known: Bools) -> Ints:
        """Cut every step's end to the end of the next step.

        Work that outlasts the next step, such as a copy of all parameters to the host, doesn't belong to the step
        time::

            step 1: |#####------------------|   copy to the host, launched by step 1
            step 2:       |######|              step 1 ends with its last activity that ends before step 2 does
        """
        follows = known[1:] & known[:-1] & ~self.job.first[1:]
        if not (follows & (end[:-1] > end[1:])).any():
            return end
        ordered = end.copy()
        for row in np.flatnonzero(follows)[::-1].tolist():
            if ordered[row] > ordered[row + 1]:
                ends = timeline.activity_end_ns[self._find_activities(row)]
                latest = ends[ends <= ordered[row + 1]].max(initial=least[row])
                ordered[row] = min(latest, ordered[row + 1])
        return ordered

    def _find_activities(self, row: int) -> Ints:
        """Return the activities that a step launched."""
        first, last = np.searchsorted(self._launching, (row, row + 1))
        bounds = np.append(self._from, self._by_step.size)
        return self._by_step[bounds[first] : bounds[last]]


def compute_work_start_ns(timeline: Timeline, kernels: pl.DataFrame) -> Ints:
    """Compute when each activity begins to work: a collective once all ranks have arrived, others at their start."""
    return _compute_work_start_ns(timeline, (kernels["family"] == "collective").to_numpy())


def _compute_work_start_ns(timeline: Timeline, collective: Bools) -> Ints:
    start, end = timeline.activity_start_ns, timeline.activity_end_ns
    works_from: Ints = np.where(collective, np.maximum(start, end - timeline.work_ns), start)
    return works_from


def _index_ranks(kernels: pl.DataFrame, steps: pl.DataFrame) -> Ints:
    """Return the index of each kernel's rank among the ranks of ``steps``."""
    ranks = _number_in_order(steps["rank"].to_numpy())[0]
    in_order = np.argsort(ranks)
    return in_order[np.searchsorted(ranks, kernels["rank"].to_numpy(), sorter=in_order)]


def _index_step_rows(kernels: pl.DataFrame, steps: pl.DataFrame) -> Ints:
    """Return the row of ``steps`` of each kernel; ``steps.height`` for kernels outside all steps."""
    of_kernel, of_step = number_pairs((kernels, steps), *STEP_KEYS)
    in_order = np.argsort(of_step)
    row = np.append(in_order, steps.height)[np.searchsorted(of_step, of_kernel, sorter=in_order)]
    return np.where(np.append(of_step, NO_NUMBER)[row] == of_kernel, row, steps.height)


def _number_in_order(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values in order of appearance, and the place of each value among them."""
    distinct, first, number = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return distinct[order], np.argsort(order)[number]
