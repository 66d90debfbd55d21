"""How the step time answers to a faster GPU and a faster host, and where the one stops helping without the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import polars as pl

from tracekit.replay.run import Run

GPU_SPEEDS = (1.0, 1.5, 2.0, 4.0, inf)
HOST_SPEEDS = (1.0, 1.25, 2.0, inf)
# What a halving of the remaining GPU time has to save for the GPU to count as the limit.
WORTH = 0.01


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Step time over speeds.

    Attributes:
        table: ``gpu_speed``, ``host_speed`` (multiples of the measured ones, ``inf`` for no time at all),
            ``step_time_us``, ``span_us``, ``kernel_time_us``, ``speedup`` of the whole span.
        gpu_floor_us: The step if every kernel took no time: what the host and the latencies leave.
        host_floor_us: The step if the host's own work took no time: what the GPU leaves.
    """

    table: pl.DataFrame
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
    table = pl.DataFrame(rows).with_columns(speedup=run.replay.span_us / pl.col("span_us"))
    return Sensitivity(table, _row(run, inf, 1.0)["step_time_us"], _row(run, 1.0, inf)["step_time_us"])


def host_limits_from(run: Run, most: float = 64.0, steps: int = 12) -> float | None:
    """The GPU speed from which on the host is the limit: doubling it again saves less than a hundredth.

    Args:
        run: The run.
        most: The highest speed to try.
        steps: How many times to halve the range that the answer lies in.

    Returns:
        A multiple of the measured GPU's speed, 1 if the host is the limit already, ``None`` if it isn't up to ``most``.
    """
    if _gains(run, most):
        return None
    low, high = 1.0, most
    if not _gains(run, low):
        return low
    for _ in range(steps):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _gains(run, middle) else (low, middle)
    return high


def _gains(run: Run, speed: float) -> bool:
    """Whether doubling the GPU's speed from ``speed`` on is still worth it."""
    before, after = (_row(run, gpu, 1.0)["span_us"] for gpu in (speed, 2 * speed))
    return after < (1 - WORTH) * before


def _row(run: Run, gpu: float, host: float) -> dict[str, float]:
    measured = run.kernels["dur_ns"].to_numpy() / 1e3
    step = run.step_with(measured / gpu, 1 / host)
    return {
        "gpu_speed": gpu,
        "host_speed": host,
        "step_time_us": step.step_time_us,
        "span_us": step.span_us,
        "kernel_time_us": step.kernel_time_us,
    }
