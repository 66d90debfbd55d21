"""How the step time answers to a faster GPU and a faster host, and where the one stops helping without the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import polars as pl

from tracekit.replay.run import Run

GPU_SPEEDS = (1.0, 1.5, 2.0, 4.0, inf)
HOST_SPEEDS = (1.0, 1.25, 2.0, inf)
NETWORK_SPEEDS = (0.5, 1.0, 2.0, 4.0, inf)
COLLECTIVE = "collective"
# What a halving of the remaining GPU time has to save for the GPU to count as the limit.
WORTH = 0.01
# Part of what the one leaves that the other has to account for to be the limit: the rest is kept as measured.
LIMITING = 0.2
# The highest speed looked at for a limit, and how often the range from 1 to it is halved: to less than 2 %.
FASTEST = 64.0
HALVINGS = 8


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


def sensitivity(
    run: Run, gpu_speeds: Sequence[float] = GPU_SPEEDS, host_speeds: Sequence[float] = HOST_SPEEDS
) -> Sensitivity:
    """Replay the run with the GPU and the host faster or slower.

    Args:
        run: The run.
        gpu_speeds: Multiples of the measured GPU's speed; every kernel and copy takes that much less.
        host_speeds: Multiples of the measured host's speed.
    """
    rows = [_row(run, gpu, host) for host in host_speeds for gpu in gpu_speeds]
    table = pl.DataFrame(rows).with_columns(speedup=run.measured.step_time_us / pl.col("step_time_us"))
    network = pl.DataFrame(
        [(speed, _row(run, 1.0, 1.0, speed)["step_time_us"]) for speed in _network_speeds(run)],
        schema={"network_speed": pl.Float64, "step_time_us": pl.Float64},
        orient="row",
    )
    return Sensitivity(table, network, _row(run, inf, 1.0)["step_time_us"], _row(run, 1.0, inf)["step_time_us"])


def _network_speeds(run: Run) -> Sequence[float]:
    return NETWORK_SPEEDS if (run.kernels["family"] == COLLECTIVE).any() else ()


def host_limits_from(run: Run) -> float | None:
    """The GPU speed from which on the host is the limit: doubling it again saves less than a hundredth.

    Args:
        run: The run.

    Returns:
        A multiple of the measured GPU's speed, 1 if the host is the limit already, ``None`` if it isn't up to 64, or
        if what is left is hardly the host's but kept as measured.
    """
    if not _is_left(run, inf, 1.0):
        return None
    return _limit(lambda speed: _row(run, speed, 1.0)["step_time_us"])


def gpu_limits_from(run: Run) -> float | None:
    """The host speed from which on the GPU is the limit, as :func:`host_limits_from` tells the other way round."""
    if not _is_left(run, 1.0, inf):
        return None
    return _limit(lambda speed: _row(run, 1.0, speed)["step_time_us"])


def _is_left(run: Run, gpu: float, host: float) -> bool:
    """Whether of the step with GPU or host taking no time a good part is the other's."""
    floor, kept = _row(run, gpu, host)["step_time_us"], _row(run, inf, inf)["step_time_us"]
    return floor - kept >= LIMITING * floor


def _limit(step_us: Callable[[float], float]) -> float | None:
    """The speed from which on doubling it is not worth it any more."""

    def gains(speed: float) -> bool:
        return step_us(2 * speed) < (1 - WORTH) * step_us(speed)

    if gains(FASTEST):
        return None
    low, high = 1.0, FASTEST
    if not gains(low):
        return low
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if gains(middle) else (low, middle)
    return high


def _row(run: Run, gpu: float, host: float, network: float = 1.0) -> dict[str, float]:
    measured = run.kernels["dur_ns"].to_numpy() / 1e3
    speed = np.where((run.kernels["family"] == COLLECTIVE).to_numpy(), gpu * network, gpu)
    step = run.step_with(measured / speed, 1 / host)
    return {
        "gpu_speed": gpu,
        "host_speed": host,
        "step_time_us": step.step_time_us,
        "kernel_time_us": step.kernel_time_us,
    }
