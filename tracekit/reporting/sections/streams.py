"""Causes of each stream's idle time in the measured run."""

from dataclasses import dataclass

from tracekit.analysis.idle import IdleBreakdown
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class StreamTime:
    """One stream in a mean step; its causes add up to its idle time, and idle and busy time to the step.

    Attributes:
        rank: The rank; ``None`` in a run of one.
        device: Index of the GPU in its process.
        stream: The stream.
        busy_us: Time in which any of its activities worked; collectives that wait for other ranks don't work.
        idle_us: Rest of the step.
        causes: Names of the causes and their times, longest first.
    """

    rank: int | None
    device: int | None
    stream: int | None
    busy_us: float
    idle_us: float
    causes: tuple[tuple[str, float], ...]


def build_stream_times(run: MeasuredRun, idle: IdleBreakdown) -> tuple[StreamTime, ...]:
    """Build the streams, sorted by rank, device and number.

    Args:
        run: The measured run.
        idle: Idle time of its streams, by cause.
    """
    table = idle.sum_by_stream()
    causes: dict[tuple[int | None, int | None, int | None, float, float], list[tuple[str, float]]] = {}
    for row in table.iter_rows(named=True):
        rank = row["rank"] if len(run.ranks) > 1 else None  # one rank isn't named
        key = (rank, row["device"], row["stream"], row["busy_us"], row["idle_us"])
        causes.setdefault(key, []).extend([(row["cause"], row["time_us"])] if row["cause"] else [])
    return tuple(StreamTime(*stream, tuple(why)) for stream, why in causes.items())
