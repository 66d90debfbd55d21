"""What kernels on several streams take from each other: a GPU's SMs and its memory bandwidth, shared.

The model is a simple one. A kernel asks for as many SMs as it has blocks, at most all, and for the
bandwidth that its bytes take in its time; what runs at one time and asks for more than there is slows down alike, by
the resource that is short most. Collectives take SMs, one for each block, while they wait too, but are
slowed by nothing; where their blocks aren't recorded, which are few, they take none. Copies neither take nor are
slowed. Real traces confirm it in part (docs/replay.md), so a prediction keeps the step without it and shows the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Floats, Ints
from tracekit.replay.engine import Timeline, measured, replay
from tracekit.replay.measure import StepTime
from tracekit.replay.run import Run

WORTH_PCT = 5.0
"""Where less of the kernels' time overlaps there is nothing to share."""

ROUNDS = 40
SETTLED = 1e-4


@dataclass(frozen=True, slots=True)
class Contention:
    """A step without and with sharing.

    Attributes:
        overlap: Percent of the kernels' measured time in which another kernel or a collective ran on the same GPU.
        apart: The step with kernels that keep the time they were given, overlapped or not.
        shared: The step with kernels that slow each other down; as ``apart`` where less than ``WORTH_PCT`` overlaps.
    """

    overlap: float
    apart: StepTime
    shared: StepTime


def contention(run: Run, kernel_us: Floats | None = None) -> Contention:
    """A step with kernels that share the GPU; arguments as for :meth:`Sharing.contention`."""
    return Sharing(run).contention(kernel_us)


class Sharing:
    """What the kernels of a run took from each other when they were measured.

    Args:
        run: The measured run.

    Attributes:
        overlap: Percent of the kernels' measured time in which another kernel or a collective ran on the same GPU.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._demand = _Demand(run)
        self.overlap = self._demand.overlap(measured(run.graph))

    def contention(self, kernel_us: Floats | None = None) -> Contention:
        """A step with kernels that share the GPU.

        The times are first freed from what the kernels took from each other when they were measured, and slowed down
        anew by what overlaps in the replay.

        Args:
            kernel_us: How long each kernel takes on another GPU, as for :meth:`Run.step_with`; by default as measured.
        """
        run = self._run
        given_ns = run.durations_ns(run.kernel_us if kernel_us is None else kernel_us)
        apart = run.median(replay(run.graph, given_ns))
        if self.overlap < WORTH_PCT:
            return Contention(self.overlap, apart, apart)
        alone_ns = given_ns * self._demand.alone(measured(run.graph))
        return Contention(self.overlap, apart, run.median(_settled(run, self._demand, alone_ns)))


def _settled(run: Run, demand: "_Demand", alone_ns: Floats) -> Timeline:
    """Replays with durations stretched by what overlapped in the one before, until that changes nothing any more."""
    durations = np.rint(alone_ns).astype(np.int64)
    timeline = replay(run.graph, durations)
    for _ in range(ROUNDS):
        stretched = np.rint(demand.stretched(timeline, alone_ns)).astype(np.int64)
        change = np.abs(stretched - durations).sum() / max(durations.sum(), 1)
        durations = stretched
        timeline = replay(run.graph, durations)
        if change < SETTLED:
            break
    return timeline


class _Demand:
    """What the activities of a run ask of their GPUs, as parts of what there is."""

    def __init__(self, run: Run) -> None:
        kernels = run.kernels
        is_kernel = pl.col("kind") == "kernel"
        slowed = is_kernel & (pl.col("family") != "collective")
        sms = run.gpu.sms if run.gpu else None
        gbps = run.gpu.bandwidth_gbps if run.gpu else None
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
        gpu = kernels.select(pl.struct({"rank", "device"} & {*kernels.columns}).rank("dense")).to_series().to_numpy()
        self._gpus = [np.flatnonzero(gpu == number) for number in np.unique(gpu)]

    def overlap(self, timeline: Timeline) -> float:
        """Percent of the kernels' time in which another one, or a collective, ran."""
        both = alone = 0.0
        for rows in self._gpus:
            runs = rows[self._runs[rows]]
            mine = runs[self.slowed[runs]]
            if not mine.size:
                continue
            times, many = _profile(timeline, runs, np.ones(runs.size))
            crowded = np.concatenate([[0.0], np.cumsum(np.diff(times) * (many[:-1] > 1))])
            start, end = timeline.activity_start_ns[mine], timeline.activity_end_ns[mine]
            both += float((np.interp(end, times, crowded) - np.interp(start, times, crowded)).sum())
            alone += float((end - start).sum())
        return 100 * both / alone if alone else 0.0

    def alone(self, timeline: Timeline) -> Floats:
        """Part of each activity's time in a timeline that it would take alone."""
        part = np.ones(self.sms.size)
        for rows, times, work in self._work(timeline):
            start, end = timeline.activity_start_ns[rows], timeline.activity_end_ns[rows]
            part[rows] = (np.interp(end, times, work) - np.interp(start, times, work)) / np.maximum(end - start, 1)
        return np.where(self.slowed & (part > 0), part, 1.0)

    def stretched(self, timeline: Timeline, alone_ns: Floats) -> Floats:
        """How long each activity takes if it starts as in a timeline and shares the GPU with what runs there."""
        lasts = alone_ns.copy()
        for rows, times, work in self._work(timeline):
            start = timeline.activity_start_ns[rows]
            done = np.interp(start, times, work) + alone_ns[rows]
            beyond = np.maximum(done - work[-1], 0)
            lasts[rows] = np.interp(done, work, times) + beyond - start
        return np.where(self.slowed, lasts, alone_ns)

    def _work(self, timeline: Timeline) -> Iterator[tuple[Ints, Floats, Floats]]:
        """Per GPU its activities, moments, and how much a kernel that runs all along has done by each of them."""
        for rows in self._gpus:
            times, sms = _profile(timeline, rows, self.sms[rows])
            _, bandwidth = _profile(timeline, rows, self.bandwidth[rows])
            pressure = np.maximum(np.maximum(sms, bandwidth), 1.0)
            yield rows, times, np.concatenate([[0.0], np.cumsum(np.diff(times) / pressure[:-1])])


def _profile(timeline: Timeline, rows: Ints, demand: Floats) -> tuple[Floats, Floats]:
    """Moments in order, and what is asked for from each of them on."""
    times = np.concatenate([timeline.activity_start_ns[rows], timeline.activity_end_ns[rows]])
    order = np.argsort(times, kind="stable")
    return times[order].astype(np.float64), np.cumsum(np.concatenate([demand, -demand])[order])
