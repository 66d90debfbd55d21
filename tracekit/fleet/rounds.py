"""What is done with one rank in each round: functions that an engine maps over the ranks of a job."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from tracekit.arrays import Floats, Ints
from tracekit.fleet.join import PlacedRank
from tracekit.fleet.kernel_times import RankKernels, TargetTimes, sum_source_demand_ns
from tracekit.fleet.replay import Durations, OpenRank, open_rank
from tracekit.replay.compressed import CompressedRank
from tracekit.replay.engine import MEASURED_TIMES, UnknownTimes
from tracekit.replay.step_time import StepSpans, StepTimes

LIKELY, LOW, HIGH = range(3)
"""Kernel times of a replay."""


@dataclass(frozen=True, slots=True)
class RankTarget:
    """A rank on a target.

    Attributes:
        place: The rank in its job.
        times: The target; None for the measured kernel times.
        replays: What is replayed: which of the likely, the low and the high kernel times, the factor on the duration of
            the host's own work, and which of the unknown times.
        unknown_times: The likely, low and high factors on the time of which the traces don't say what it was.
    """

    place: PlacedRank
    times: TargetTimes | None = None
    replays: tuple[tuple[int, float, int], ...] = ((LIKELY, 1.0, LIKELY),)
    unknown_times: tuple[UnknownTimes, UnknownTimes, UnknownTimes] = (MEASURED_TIMES, MEASURED_TIMES, MEASURED_TIMES)

    def change_times(self, **changed: Any) -> "RankTarget":
        """Return the rank with other fields of its target."""
        return replace(self, times=None if self.times is None else replace(self.times, **changed))


@dataclass(frozen=True, slots=True)
class BoundRank:
    """A rank on a target, between the rendezvous of its job.

    Attributes:
        rank: The rank.
        met_ns: For each replay, when the rendezvous take place that it waits for: in the replay, and of the hosts
            alone.
    """

    rank: RankTarget
    met_ns: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class TimeSums:
    """What a job's interval and coverage need of one rank's kernels on a target.

    Attributes:
        repeats: Of :meth:`RankKernels.sum_repeats`.
        methods_ns: Of :meth:`RankKernels.sum_methods_ns`.
        energies: Of :meth:`RankKernels.sum_energies`.
        keeps_measured: Whether all kernels take as long as measured.
        clocked_us: Time of all kernels at the clock before the step's power lowers it, and at the one that it keeps.
    """

    repeats: pl.DataFrame
    methods_ns: tuple[tuple[int, ...], tuple[int, ...]]
    energies: tuple[Floats, Floats, Floats]
    keeps_measured: bool
    clocked_us: tuple[float, float]


def compress(item: RankTarget) -> CompressedRank:
    """Compress a rank's graph for its replays."""
    rank = open_rank(item.place)
    return rank.compress(_list_durations(rank, item))


def time_steps(item: BoundRank) -> list[StepTimes]:
    """Replay a rank between its rendezvous; return the times of its steps, as recorded first if they are measured."""
    rank = open_rank(item.rank.place)
    timer = rank.make_timer()
    pairs = zip(item.met_ns[::2], item.met_ns[1::2], strict=True)
    lines = [rank.replay(one, *met) for one, met in zip(_list_durations(rank, item.rank), pairs, strict=True)]
    if item.rank.times is None:
        lines.insert(0, rank.build_recorded_timeline(item.met_ns[1]))
    return [timer.compute_step_times(line) for line in lines]


def sum_source_demand(item: RankTarget) -> Floats:
    """Sum over each step what the measured kernels demanded of each board's power."""
    assert item.times is not None
    return sum_source_demand_ns(open_rank(item.place), item.times)


def sum_demand(item: RankTarget) -> Floats:
    """Sum over each step what the kernels demand of the power of each of the target's boards."""
    assert item.times is not None
    return RankKernels(open_rank(item.place), item.times).sum_demand_ns()


def sum_times(item: RankTarget) -> TimeSums:
    """Sum the kernel times of the chosen steps on a target."""
    assert item.times is not None
    kernels = RankKernels(open_rank(item.place), item.times)
    return TimeSums(
        kernels.sum_repeats(),
        kernels.sum_methods_ns(),
        kernels.sum_energies(),
        kernels.keeps_measured(),
        (float(kernels.boosted["time_us"].sum()), float(kernels.times["time_us"].sum())),
    )


def merge_gpus(ranks: Sequence[Floats]) -> Floats:
    """Merge sums by GPU and step of all ranks, rank after rank; NaN where a rank has fewer GPUs than others."""
    gpus = max(one.shape[0] for one in ranks)
    padded = (np.pad(one, ((0, gpus - one.shape[0]), (0, 0)), constant_values=np.nan) for one in ranks)
    return np.concatenate(list(padded), axis=1)


def merge_steps(ranks: list[StepTimes]) -> StepTimes:
    """Merge the steps of all ranks, rank after rank."""
    spans = StepSpans(
        *(
            np.concatenate([getattr(one.spans, name) for one in ranks])
            for name in ("begin_ns", "previous_end_ns", "end_ns", "has_times", "has_duration")
        )
    )
    gpu = (np.concatenate([getattr(one, name) for one in ranks]) for name in ("busy_ns", "exposed_ns", "waiting_ns"))
    return StepTimes(spans, *gpu)


def _list_durations(rank: OpenRank, item: RankTarget) -> list[Durations]:
    if item.times is None:
        return [Durations()]
    every = RankKernels(rank, item.times).list_durations_ns()
    return [Durations(every[which], host, item.unknown_times[unknown]) for which, host, unknown in item.replays]
