"""Replays at other speeds of GPU, host and network, and with the kernel times of another run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import inf
from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.replay.engine import Replayer, ReplayTimes
from tracekit.replay.step_time import StepTime
from tracekit.run import MeasuredRun
from tracekit.workload.step_kinds import compute_time_share

GPU_SPEEDS = (1.0, 1.5, 2.0, 4.0, inf)
HOST_SPEEDS = (1.0, 1.25, 2.0, inf)
NETWORK_SPEEDS = (0.5, 1.0, 2.0, 4.0, inf)
COLLECTIVE = "collective"
# Fraction of the span that doubling the speed has to save for it to count as the limit.
MIN_SAVING_FRACTION = 0.01
# Fraction of the floor that the other resource has to account for to be the limit; the rest stays as measured.
MIN_LIMITING_FRACTION = 0.5
# Highest speed searched for a limit, and bisections of the range from 1 to it: the result is exact to 2 %.
MAX_SPEED = 64.0
BISECTION_STEPS = 8


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Step time over speeds: the median of steps that are each scaled by its two replays, as predictions are.

    Attributes:
        table: ``gpu_speed``, ``host_speed`` (multiples of the measured ones, ``inf`` for no time at all),
            ``step_time_us``, ``speedup``.
        network: ``network_speed`` and ``step_time_us``: collectives take that much less; no rows without any.
        gpu_floor_us: The step if every kernel took no time: what the host and the latencies leave.
        host_floor_us: The step if the host's own work took no time: what the GPU leaves.
        kept_us: The step if neither took any time: latencies, and waits and gaps that the trace doesn't explain.
    """

    table: pl.DataFrame
    network: pl.DataFrame
    gpu_floor_us: float
    host_floor_us: float
    kept_us: float


class Speeds(NamedTuple):
    """Speeds as multiples of the measured ones; ``inf`` takes no time at all."""

    gpu: float = 1.0
    host: float = 1.0
    network: float = 1.0


class SpeedReplays:
    """Step times of a run at other speeds of GPU, host and network; each is replayed once."""

    def __init__(self, run: MeasuredRun) -> None:
        self.run = run
        self._kernel_us = run.kernels["dur_ns"].to_numpy() / 1e3
        self._is_collective = (run.kernels["family"] == COLLECTIVE).to_numpy()
        self._replayer = Replayer(run.graph)
        self._step_times_us: dict[Speeds, float] = {}

    @property
    def has_collectives(self) -> bool:
        """Whether the network's speed matters."""
        return bool(self._is_collective.any())

    def compute_step_time_us(self, gpu: float = 1.0, host: float = 1.0, network: float = 1.0) -> float:
        """Compute the median step at some speeds."""
        speeds = Speeds(gpu, host, network)
        self.replay_together([speeds])
        return self._step_times_us[speeds]

    def replay_together(self, wanted: Iterable[Speeds]) -> None:
        """Replay at several speeds in one pass, so that their steps are at hand."""
        new = [speeds for speeds in dict.fromkeys(wanted) if speeds not in self._step_times_us]
        timelines = self._replayer.replay(map(self._choose_times, new))
        self._step_times_us.update(zip(new, map(self.run.program.measure_step_us, timelines), strict=True))

    def _choose_times(self, speeds: Speeds) -> ReplayTimes:
        gpu, host, network = speeds
        speed = gpu if network == 1.0 else np.where(self._is_collective, gpu * network, gpu)
        return ReplayTimes(self.run.program.to_durations_ns(self._kernel_us / speed), 1 / host, 1 / gpu)


def compute_sensitivity(
    replays: SpeedReplays, gpu_speeds: Sequence[float] = GPU_SPEEDS, host_speeds: Sequence[float] = HOST_SPEEDS
) -> Sensitivity:
    """Replay a run with faster or slower GPU and host.

    Speeds are multiples of the measured ones; the GPU's is for all kernels and copies, recorded or not.
    """
    grid = [Speeds(gpu, host) for host in host_speeds for gpu in gpu_speeds]
    network_speeds = [Speeds(network=speed) for speed in NETWORK_SPEEDS] if replays.has_collectives else []
    floors = (Speeds(gpu=inf), Speeds(host=inf), Speeds(gpu=inf, host=inf))
    replays.replay_together((*grid, *network_speeds, *floors))
    columns = dict.fromkeys(("gpu_speed", "host_speed", "step_time_us"), pl.Float64)
    rows = [(one.gpu, one.host, replays.compute_step_time_us(*one)) for one in grid]
    table = pl.DataFrame(rows, schema=columns, orient="row")
    network = pl.DataFrame(
        [(one.network, replays.compute_step_time_us(*one)) for one in network_speeds],
        schema={"network_speed": pl.Float64, "step_time_us": pl.Float64},
        orient="row",
    )
    return Sensitivity(
        table.with_columns(speedup=replays.run.measured_step.step_time_us / pl.col("step_time_us")),
        network,
        *(replays.compute_step_time_us(*one) for one in floors),
    )


@dataclass(frozen=True, slots=True)
class LimitSpeeds:
    """The speed from which on the other resource is the limit: doubling it again saves less than 1 %.

    A multiple of the measured speed, 1 if the other is already the limit. ``None`` if it isn't up to a speed of 64, or
    if the remaining time is mostly kept as measured rather than the other's.

    Attributes:
        gpu: Speed of the GPU from which on the host is the limit.
        host: Speed of the host from which on the GPU is the limit.
    """

    gpu: float | None
    host: float | None


def find_limit_speeds(replays: SpeedReplays) -> LimitSpeeds:
    """Find the speeds of GPU and host from which on more is not worth it; both bisections share their passes."""
    limited = [
        one
        for one, floor in (("gpu", Speeds(gpu=inf)), ("host", Speeds(host=inf)))
        if _is_limited_by_rest(replays, floor)
    ]
    ends = _find_gains(replays, product(limited, (1.0, MAX_SPEED**0.5, MAX_SPEED)))
    found = {one: None if ends[one, MAX_SPEED] else 1.0 for one in limited}
    ranges = {one: (1.0, MAX_SPEED) for one in limited if ends[one, 1.0] and not ends[one, MAX_SPEED]}
    for _ in range(BISECTION_STEPS):
        middles = {one: (low * high) ** 0.5 for one, (low, high) in ranges.items()}
        gains = _find_gains(replays, middles.items())
        for one, middle in middles.items():
            low, high = ranges[one]
            ranges[one] = (middle, high) if gains[one, middle] else (low, middle)
    found |= {one: high for one, (_, high) in ranges.items()}
    return LimitSpeeds(found.get("gpu"), found.get("host"))


def _is_limited_by_rest(replays: SpeedReplays, speeds: Speeds) -> bool:
    """Return whether a good part of the step with GPU or host taking no time is the other's."""
    floor, kept = replays.compute_step_time_us(*speeds), replays.compute_step_time_us(inf, inf)
    return floor - kept >= MIN_LIMITING_FRACTION * floor


def _find_gains(replays: SpeedReplays, asked: Iterable[tuple[str, float]]) -> dict[tuple[str, float], bool]:
    """Find whether doubling a resource's speed once more is worth it, for several resources and speeds in one pass."""
    pairs = {(one, speed): [Speeds(**{one: factor * speed}) for factor in (1, 2)] for one, speed in asked}
    replays.replay_together(chain.from_iterable(pairs.values()))
    times = {key: [replays.compute_step_time_us(*speeds) for speeds in pair] for key, pair in pairs.items()}
    return {key: twice < (1 - MIN_SAVING_FRACTION) * once for key, (once, twice) in times.items()}


MATCH_COLUMNS = ("place", "what", "input_dims")


@dataclass(frozen=True, slots=True)
class Transplant:
    """A replay with another run's kernel times.

    Attributes:
        expected: The step that the other run measured.
        error_pct: Error of the median step.
        matched_pct: Percent of this run's GPU time whose kernel was found in the other run; other kernels keep their
            own times.
    """

    step: StepTime
    expected: StepTime
    error_pct: float
    matched_pct: float


def transplant(run: MeasuredRun, other: MeasuredRun) -> Transplant:
    """Replay a run with the kernel times of another run of the same program.

    Kernels match if the same op launched them (without ops: if they have the same name) on the same shapes, at the
    same place among the steps and in the same order of launch. Kernels may therefore differ in name, as they do
    between GPUs. Waiting for ranks that weren't read, which the graph can't derive, is taken over with the kernels.
    The host's times stay.

    The graph is that of ``run``; one rank of ``other`` is enough.
    """
    mine, theirs = (
        _identify_kernels(run),
        _identify_kernels(other).rename({"dur_ns": "other_ns", "kept_ns": "other_kept_ns"}),
    )
    keys = [*MATCH_COLUMNS, "occurrence"]
    times = theirs.select(*keys, "other_ns", "other_kept_ns")
    joined = mine.join(times, on=keys, how="left", nulls_equal=True).sort("row")
    kept_ns = joined.select(pl.coalesce("other_kept_ns", "kept_ns")).to_series().to_numpy()
    changed = replace(run.program, graph=replace(run.graph, kept_ns=kept_ns))
    times_us = (joined.select(pl.coalesce("other_ns", "dur_ns")).to_series() / 1e3).to_numpy()
    step = changed.step_timer.compute_median(changed.replay_timeline(times_us))
    matched = compute_time_share(joined, "dur_ns", pl.col("other_ns").is_not_null())
    error_pct = 100 * (step.step_time_us / other.measured_step.step_time_us - 1)
    return Transplant(step, other.measured_step, error_pct, matched)


def _identify_kernels(run: MeasuredRun) -> pl.DataFrame:
    """Tabulate the kernels: ``row``, ``dur_ns``, and the columns that identify them in another run."""
    steps = run.steps["step"].unique(maintain_order=True)
    table = run.kernels.select(
        row=pl.int_range(pl.len()),
        dur_ns="dur_ns",
        kept_ns=run.graph.kept_ns,
        input_dims="input_dims",
        # Order of launch: the row of the launching call, as calls are in order of time; the start where none is known.
        launched=pl.coalesce("call", "ts_ns"),
        place=pl.col("step").replace_strict(steps, pl.Series(range(len(steps)), dtype=pl.Int64), default=None),
        what=pl.coalesce("op", "name"),
    )
    ordered = table.sort("launched", "row")
    return ordered.with_columns(occurrence=pl.int_range(pl.len()).over(MATCH_COLUMNS))
