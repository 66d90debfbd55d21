"""Replays at other speeds of GPU, host and network, and with the kernel times of another run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import polars as pl

from tracekit.replay.engine import Replayer
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


class SpeedReplays:
    """Step times of a run at other speeds of GPU, host and network; each is replayed once."""

    def __init__(self, run: MeasuredRun) -> None:
        self.run = run
        self.has_collectives = bool((run.kernels["family"] == COLLECTIVE).any())
        self._kernel_us = run.kernels["dur_ns"].to_numpy() / 1e3
        self._is_collective = (run.kernels["family"] == COLLECTIVE).to_numpy()
        self._replayer = Replayer(run.graph)
        self._step_times_us: dict[tuple[float, float, float], float] = {}

    def compute_step_time_us(self, gpu: float = 1.0, host: float = 1.0, network: float = 1.0) -> float:
        """Compute the median step at multiples of the measured speeds; ``inf`` takes no time at all."""
        key = (gpu, host, network)
        if key not in self._step_times_us:
            speed = gpu if network == 1.0 else np.where(self._is_collective, gpu * network, gpu)
            durations_ns = self.run.program.to_durations_ns(self._kernel_us / speed)
            line = self._replayer.replay(durations_ns, 1 / host, 1 / gpu)
            self._step_times_us[key] = self.run.program.measure_step_us(line)
        return self._step_times_us[key]


def compute_sensitivity(
    replays: SpeedReplays, gpu_speeds: Sequence[float] = GPU_SPEEDS, host_speeds: Sequence[float] = HOST_SPEEDS
) -> Sensitivity:
    """Replay a run with faster or slower GPU and host.

    Speeds are multiples of the measured ones; the GPU's is for all kernels and copies, recorded or not.
    """
    rows = [(gpu, host, replays.compute_step_time_us(gpu, host)) for host in host_speeds for gpu in gpu_speeds]
    columns = dict.fromkeys(("gpu_speed", "host_speed", "step_time_us"), pl.Float64)
    table = pl.DataFrame(rows, schema=columns, orient="row")
    network = pl.DataFrame(
        [
            (speed, replays.compute_step_time_us(network=speed))
            for speed in (NETWORK_SPEEDS if replays.has_collectives else ())
        ],
        schema={"network_speed": pl.Float64, "step_time_us": pl.Float64},
        orient="row",
    )
    return Sensitivity(
        table.with_columns(speedup=replays.run.measured_step.step_time_us / pl.col("step_time_us")),
        network,
        gpu_floor_us=replays.compute_step_time_us(gpu=inf),
        host_floor_us=replays.compute_step_time_us(host=inf),
        kept_us=replays.compute_step_time_us(gpu=inf, host=inf),
    )


def find_host_limited_gpu_speed(replays: SpeedReplays) -> float | None:
    """Find the GPU speed from which on the host is the limit: doubling the speed again saves less than 1 %.

    Returns:
        A multiple of the measured GPU's speed, 1 if the host is already the limit. ``None`` if the host isn't the
        limit up to a speed of 64, or if the remaining time is mostly kept as measured rather than host work.
    """
    if not _is_limited_by_rest(replays, inf, 1.0):
        return None
    return _find_limit_speed(lambda speed: replays.compute_step_time_us(gpu=speed))


def find_gpu_limited_host_speed(replays: SpeedReplays) -> float | None:
    """Find the host speed from which on the GPU is the limit; mirrors :func:`find_host_limited_gpu_speed`."""
    if not _is_limited_by_rest(replays, 1.0, inf):
        return None
    return _find_limit_speed(lambda speed: replays.compute_step_time_us(host=speed))


def _is_limited_by_rest(replays: SpeedReplays, gpu: float, host: float) -> bool:
    """Return whether a good part of the step with GPU or host taking no time is the other's."""
    floor, kept = replays.compute_step_time_us(gpu, host), replays.compute_step_time_us(inf, inf)
    return floor - kept >= MIN_LIMITING_FRACTION * floor


def _find_limit_speed(step_us: Callable[[float], float]) -> float | None:
    """Find the speed from which on doubling it is not worth it any more."""

    def gains(speed: float) -> bool:
        return step_us(2 * speed) < (1 - MIN_SAVING_FRACTION) * step_us(speed)

    if gains(MAX_SPEED):
        return None
    low, high = 1.0, MAX_SPEED
    if not gains(low):
        return low
    for _ in range(BISECTION_STEPS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if gains(middle) else (low, middle)
    return high


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
        launched=pl.coalesce("call", "ts_ns"),
        place=pl.col("step").replace_strict(steps, pl.Series(range(len(steps)), dtype=pl.Int64), default=None),
        what=pl.coalesce("op", "name"),
    )
    ordered = table.sort("launched", "row")
    return ordered.with_columns(occurrence=pl.int_range(pl.len()).over(MATCH_COLUMNS))
