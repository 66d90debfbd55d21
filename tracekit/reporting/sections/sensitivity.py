"""How the step answers to a faster GPU and a faster host."""

from dataclasses import dataclass
from math import inf

from tracekit.replay.run import Run
from tracekit.replay.sensitivity import gpu_limits_from, host_limits_from, sensitivity

GPU_SPEEDS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
HOST_SPEEDS = (1.0, 1.5, inf)


@dataclass(frozen=True, slots=True)
class Speeds:
    """The step at other speeds of GPU and host.

    Attributes:
        points: Speed of the GPU and of the host as multiples of the measured ones (the host's may be infinite), and
            the step time in microseconds.
        gpu_floor_us: The step if every kernel took no time: what the host and the latencies leave.
        host_floor_us: The step if the host's own work took no time: what the GPU leaves.
        network: Speed of the network as a multiple of the measured one, and the step time; empty without collectives.
        host_limits_from: Speed of the GPU from which on a faster one hardly helps, as the host is the limit; ``None``
            if that doesn't come.
        gpu_limits_from: The same with GPU and host exchanged.
    """

    points: tuple[tuple[float, float, float], ...]
    gpu_floor_us: float
    host_floor_us: float
    network: tuple[tuple[float, float], ...]
    host_limits_from: float | None
    gpu_limits_from: float | None


def build(run: Run) -> Speeds:
    """Replays of the measured run, on the scale of the measured step."""
    found = sensitivity(run, GPU_SPEEDS, HOST_SPEEDS)
    rows = found.table.select("gpu_speed", "host_speed", "step_time_us")
    return Speeds(
        points=tuple(rows.iter_rows()),
        gpu_floor_us=found.gpu_floor_us,
        host_floor_us=found.host_floor_us,
        network=tuple(found.network.iter_rows()),
        host_limits_from=host_limits_from(run),
        gpu_limits_from=gpu_limits_from(run),
    )
