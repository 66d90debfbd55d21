"""Sensitivity of the step time to a faster GPU and a faster host."""

from dataclasses import dataclass
from math import inf, isinf

from tracekit.analysis.sensitivity import (
    SpeedReplays,
    compute_sensitivity,
    find_gpu_limited_host_speed,
    find_host_limited_gpu_speed,
)

GPU_SPEEDS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
HOST_SPEEDS = (1.0, 1.5, inf)


@dataclass(frozen=True, slots=True)
class SpeedSensitivity:
    """Step times at other speeds of GPU and host.

    Attributes:
        points: Speeds of GPU and host as multiples of the measured ones, and step time in microseconds; ``None`` for
            a host whose own work takes no time.
        gpu_floor_us: Step time if all kernels took zero time: what host and latencies leave.
        host_floor_us: Step time if the host's own work took zero time: what the GPU leaves.
        kept_us: Step time if both took zero time: latencies, and waits and gaps that the trace doesn't explain.
        network: Speed of the network as a multiple of the measured one (``None``: infinite), and step time; empty
            without collectives.
        host_limits_from: Speed of the GPU from which on the host is the limit and a faster GPU hardly helps; ``None``
            if there is no such speed.
        gpu_limits_from: Speed of the host from which on the GPU is the limit; ``None`` if there is no such speed.
    """

    points: tuple[tuple[float, float | None, float], ...]
    gpu_floor_us: float
    host_floor_us: float
    kept_us: float
    network: tuple[tuple[float | None, float], ...]
    host_limits_from: float | None
    gpu_limits_from: float | None


def build_speed_sensitivity(replays: SpeedReplays) -> SpeedSensitivity:
    """Replay the measured run at other speeds, on the scale of the measured step."""
    found = compute_sensitivity(replays, GPU_SPEEDS, HOST_SPEEDS)
    rows = found.table.select("gpu_speed", "host_speed", "step_time_us")
    return SpeedSensitivity(
        points=tuple((gpu, _replace_infinity(host), step_us) for gpu, host, step_us in rows.iter_rows()),
        gpu_floor_us=found.gpu_floor_us,
        host_floor_us=found.host_floor_us,
        kept_us=found.kept_us,
        network=tuple((_replace_infinity(speed), step_us) for speed, step_us in found.network.iter_rows()),
        host_limits_from=find_host_limited_gpu_speed(replays),
        gpu_limits_from=find_gpu_limited_host_speed(replays),
    )


def _replace_infinity(speed: float) -> float | None:
    return None if isinf(speed) else speed
