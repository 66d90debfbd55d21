"""Sensitivity of the step time to the speeds of GPU and host, and the speeds at which the other becomes the limit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import polars as pl

from tracekit.run import MeasuredRun

GPU_SPEEDS = (1.0, 1.5, 2.0, 4.0, inf)
HOST_SPEEDS = (1.0, 1.25, 2.0, inf)
NETWORK_SPEEDS = (0.5, 1.0, 2.0, 4.0, inf)
COLLECTIVE = "collective"
# Fraction of the span that doubling the speed has to save for it to count as the limit.
MIN_SAVING_FRACTION = 0.01
# Fraction of the floor that the other resource has to account for to be the limit; the rest stays as measured.
MIN_LIMITING_FRACTION = 0.2
# Highest speed searched for a limit, and bisections of the range from 1 to it: the result is exact to 2 %.
MAX_SPEED = 64.0
BISECTION_STEPS = 8


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Step time over speeds: the median of steps that are each scaled by its two replays, as predictions are.

    Attributes:
        table: ``gpu_speed``, ``host_speed`` (multiples of the measured ones, ``inf`` for no time at all),
            ``step_time_us``, ``kernel_time_us``, ``speedup``.
        network: ``network_speed`` and ``step_time_us``: collectives take that much less; no rows without any.
        gpu_floor_us: The step if every kernel took no time: what the host and the latencies leave.
        host_floor_us: The step if the host's own work took no time: what the GPU leaves.
    """

    table: pl.DataFrame
    network: pl.DataFrame
    gpu_floor_us: float
    host_floor_us: float


def compute_sensitivity(
    run: MeasuredRun, gpu_speeds: Sequence[float] = GPU_SPEEDS, host_speeds: Sequence[float] = HOST_SPEEDS
) -> Sensitivity:
    """Replay the run with faster or slower GPU and host.

    Args:
        run: The run.
        gpu_speeds: Multiples of the measured GPU's speed, for all kernels and copies.
        host_speeds: Multiples of the measured host's speed.
    """
    rows = [_replay_at_speeds(run, gpu, host) for host in host_speeds for gpu in gpu_speeds]
    table = pl.DataFrame(rows).with_columns(speedup=run.measured_step.step_time_us / pl.col("step_time_us"))
    network = pl.DataFrame(
        [(speed, _replay_at_speeds(run, 1.0, 1.0, speed)["step_time_us"]) for speed in _get_network_speeds(run)],
        schema={"network_speed": pl.Float64, "step_time_us": pl.Float64},
        orient="row",
    )
    return Sensitivity(
        table,
        network,
        _replay_at_speeds(run, inf, 1.0)["step_time_us"],
        _replay_at_speeds(run, 1.0, inf)["step_time_us"],
    )


def _get_network_speeds(run: MeasuredRun) -> Sequence[float]:
    return NETWORK_SPEEDS if (run.kernels["family"] == COLLECTIVE).any() else ()


def find_host_limited_gpu_speed(run: MeasuredRun) -> float | None:
    """Find the GPU speed from which on the host is the limit: doubling the speed again saves less than 1 %.

    Args:
        run: The run.

    Returns:
        A multiple of the measured GPU's speed, 1 if the host is already the limit. ``None`` if the host isn't the
        limit up to a speed of 64, or if the remaining time is mostly measured waiting rather than host work.
    """
    if not _is_limited_by_rest(run, inf, 1.0):
        return None
    return _find_limit_speed(lambda speed: _replay_at_speeds(run, speed, 1.0)["step_time_us"])


def find_gpu_limited_host_speed(run: MeasuredRun) -> float | None:
    """Find the host speed from which on the GPU is the limit; mirrors :func:`find_host_limited_gpu_speed`."""
    if not _is_limited_by_rest(run, 1.0, inf):
        return None
    return _find_limit_speed(lambda speed: _replay_at_speeds(run, 1.0, speed)["step_time_us"])


def _is_limited_by_rest(run: MeasuredRun, gpu: float, host: float) -> bool:
    """Whether of the step with GPU or host taking no time a good part is the other's."""
    floor, kept = _replay_at_speeds(run, gpu, host)["step_time_us"], _replay_at_speeds(run, inf, inf)["step_time_us"]
    return floor - kept >= MIN_LIMITING_FRACTION * floor


def _find_limit_speed(step_us: Callable[[float], float]) -> float | None:
    """The speed from which on doubling it is not worth it any more."""

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


def _replay_at_speeds(run: MeasuredRun, gpu: float, host: float, network: float = 1.0) -> dict[str, float]:
    measured = run.kernels["dur_ns"].to_numpy() / 1e3
    speed = np.where((run.kernels["family"] == COLLECTIVE).to_numpy(), gpu * network, gpu)
    step = run.replay_step(measured / speed, 1 / host)
    return {
        "gpu_speed": gpu,
        "host_speed": host,
        "step_time_us": step.step_time_us,
        "kernel_time_us": step.kernel_time_us,
    }
