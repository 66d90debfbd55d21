"""Contention: kernels on several streams slow one another down when they need more SMs or bandwidth than the GPU has.

The model is simple. A kernel demands as many SMs as it has blocks, at most all, and the memory bandwidth at which it
moved its bytes. Kernels that run at the same time and demand more than the GPU has all slow down by the same factor,
that of the scarcest resource. Collectives occupy one SM per block, also while they wait, but are never slowed down; if
their blocks aren't recorded, they occupy no SMs, as they use few. Copies neither occupy resources nor slow down::

    kernel A |########|              60 % of the SMs
    kernel B     |########|          80 % of the SMs
                 |----|              demand 140 %: both run at 1 / 1.4 of their speed here

Real traces confirm the model in part (docs/explanation/replay.md). Predictions therefore exclude contention and report
it separately.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from predictors import Gpu
from tracekit.arrays import Floats, Ints
from tracekit.graph import Graph
from tracekit.program import Program
from tracekit.replay.engine import Timeline, replay
from tracekit.replay.step_time import StepTime

MIN_OVERLAP_PCT = 5.0
"""Overlap below which contention is ignored."""

MAX_ITERATIONS = 40
CONVERGENCE_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Contention:
    """A step without and with contention.

    Attributes:
        overlap_pct: Percent of the kernels' measured time in which another kernel or a collective ran on the same GPU.
        uncontended: The step in which kernels keep their given times, overlapped or not.
        contended: The step in which kernels slow one another down; equal to ``uncontended`` if less than
            ``MIN_OVERLAP_PCT`` overlaps.
    """

    overlap_pct: float
    uncontended: StepTime
    contended: StepTime


@dataclass(frozen=True, slots=True)
class Overlap:
    """How long kernels overlap in a measurement.

    Attributes:
        overlapped_ns: Time of kernels in which another kernel or a collective ran on the same GPU.
        total_ns: All of their time.
    """

    overlapped_ns: float
    total_ns: float

    @property
    def percent(self) -> float:
        """Percent of the kernels' time that overlaps."""
        return 100 * self.overlapped_ns / self.total_ns if self.total_ns else 0.0


def measure_overlap(program: Program, gpu: Gpu | None) -> Overlap:
    """Measure how long the kernels of a program overlap; arguments as for :class:`ContentionModel`."""
    return _ResourceDemand(program.kernels, gpu).measure_overlap(program.measured_timeline)


def join_overlaps(overlaps: Iterable[Overlap]) -> Overlap:
    """Join the overlaps of several ranks."""
    found = list(overlaps)
    return Overlap(sum(one.overlapped_ns for one in found), sum(one.total_ns for one in found))


class ContentionModel:
    """Contention among the kernels of a program.

    Args:
        gpu: The GPU on which it was recorded; ``None`` if it isn't known.

    Attributes:
        overlap_pct: Percent of the kernels' measured time in which another kernel or a collective ran on the same GPU.
    """

    def __init__(self, program: Program, gpu: Gpu | None) -> None:
        self._program = program
        self._demand = _ResourceDemand(program.kernels, gpu)
        self.overlap = self._demand.measure_overlap(program.measured_timeline).percent

    def estimate(self, kernel_us: Floats | None = None, host_time: float = 1.0) -> Contention:
        """Estimate a step with contention.

        The contention of the measurement is first removed from the times. They are then slowed down by what overlaps
        in the replay.

        Args:
            kernel_us: Time of each kernel on another GPU, as for :meth:`Program.replay_step`; as measured by
                default.
            host_time: Factor on the duration of the host's own work.
        """
        program = self._program
        given_ns = program.to_durations_ns(program.kernel_us if kernel_us is None else kernel_us)
        apart = program.compute_median(replay(program.graph, given_ns, host_time))
        if self.overlap < MIN_OVERLAP_PCT:
            return Contention(self.overlap, apart, apart)
        alone_ns = given_ns * self._demand.compute_alone_fractions(program.measured_timeline)
        contended = program.compute_median(_replay_until_converged(program.graph, self._demand, alone_ns, host_time))
        return Contention(self.overlap, apart, contended)


def _replay_until_converged(graph: Graph, demand: "_ResourceDemand", alone_ns: Floats, host_time: float) -> Timeline:
    """Replay with durations stretched by the overlap of the previous replay, until they no longer change."""
    durations = np.rint(alone_ns).astype(np.int64)
    timeline = replay(graph, durations, host_time)
    for _ in range(MAX_ITERATIONS):
        stretched = np.rint(demand.stretch_durations(timeline, alone_ns)).astype(np.int64)
        change = np.abs(stretched - durations).sum() / max(durations.sum(), 1)
        durations = stretched
        timeline = replay(graph, durations, host_time)
        if change < CONVERGENCE_TOLERANCE:
            break
    return timeline


class _ResourceDemand:
    """Demand of a run's activities on their GPUs, as fractions of what the GPU has."""

    def __init__(self, kernels: pl.DataFrame, gpu: Gpu | None) -> None:
        is_kernel = pl.col("kind") == "kernel"
        slowed = is_kernel & (pl.col("family") != "collective")
        sms = gpu.sms if gpu else None
        gbps = gpu.bandwidth_gbps if gpu else None
        asked = kernels.select(
            sms=pl.when(is_kernel)
            .then(pl.coalesce((pl.col("blocks") / sms).clip(0, 1), slowed.cast(pl.Float64)))
            .otherwise(0.0),
            bandwidth=pl.when(slowed, pl.col("bytes") > 0)
            .then((pl.col("bytes") / pl.col("dur_ns") / gbps).clip(0, 1))
            .fill_null(0.0),
            slowed=slowed,
            runs=is_kernel,
        )
        self.sms, self.bandwidth, self.slowed, self._runs = (asked[name].to_numpy() for name in asked.columns)
        place = kernels.select(pl.struct({"rank", "device"} & {*kernels.columns}).rank("dense")).to_series().to_numpy()
        self._gpus = [np.flatnonzero(place == number) for number in np.unique(place)]

    def measure_overlap(self, timeline: Timeline) -> Overlap:
        """Measure for how much of the kernels' time another kernel or a collective ran."""
        both = alone = 0.0
        for rows in self._gpus:
            runs = rows[self._runs[rows]]
            mine = runs[self.slowed[runs]]
            if not mine.size:
                continue
            times, many = _compute_demand_profile(timeline, runs, np.ones(runs.size))
            crowded = np.concatenate([[0.0], np.cumsum(np.diff(times) * (many[:-1] > 1))])
            start, end = timeline.activity_start_ns[mine], timeline.activity_end_ns[mine]
            both += float((np.interp(end, times, crowded) - np.interp(start, times, crowded)).sum())
            alone += float((end - start).sum())
        return Overlap(both, alone)

    def compute_alone_fractions(self, timeline: Timeline) -> Floats:
        """Compute the fraction of each activity's time in a timeline that it would take without contention."""
        part = np.ones(self.sms.size)
        for rows, times, work in self._accumulate_progress(timeline):
            start, end = timeline.activity_start_ns[rows], timeline.activity_end_ns[rows]
            part[rows] = (np.interp(end, times, work) - np.interp(start, times, work)) / np.maximum(end - start, 1)
        return np.where(self.slowed & (part > 0), part, 1.0)

    def stretch_durations(self, timeline: Timeline, alone_ns: Floats) -> Floats:
        """Compute each activity's duration if it starts as in a timeline and contends with what runs there."""
        lasts = alone_ns.copy()
        for rows, times, work in self._accumulate_progress(timeline):
            start = timeline.activity_start_ns[rows]
            done = np.interp(start, times, work) + alone_ns[rows]
            beyond = np.maximum(done - work[-1], 0)
            lasts[rows] = np.interp(done, work, times) + beyond - start
        return np.where(self.slowed, lasts, alone_ns)

    def _accumulate_progress(self, timeline: Timeline) -> Iterator[tuple[Ints, Floats, Floats]]:
        """Yield for each GPU its activities, the times at which demand changes, and a kernel's progress by these times.

        Progress is in nanoseconds of uncontended work. Example: demand 1 until t = 100, then 2: at t = 100 and t =
        140 the progress is 100 and 120.
        """
        for rows in self._gpus:
            times, sms = _compute_demand_profile(timeline, rows, self.sms[rows])
            _, bandwidth = _compute_demand_profile(timeline, rows, self.bandwidth[rows])
            pressure = np.maximum(np.maximum(sms, bandwidth), 1.0)
            yield rows, times, np.concatenate([[0.0], np.cumsum(np.diff(times) / pressure[:-1])])


def _compute_demand_profile(timeline: Timeline, rows: Ints, demand: Floats) -> tuple[Floats, Floats]:
    """Return the times at which demand changes, in order, and the demand from each of them on."""
    times = np.concatenate([timeline.activity_start_ns[rows], timeline.activity_end_ns[rows]])
    order = np.argsort(times, kind="stable")
    return times[order].astype(np.float64), np.cumsum(np.concatenate([demand, -demand])[order])
