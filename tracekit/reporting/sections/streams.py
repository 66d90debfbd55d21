"""Why each stream of the measured run was idle."""

from dataclasses import dataclass

from tracekit.replay.engine import measured
from tracekit.replay.idle import attribute
from tracekit.replay.run import Run


@dataclass(frozen=True, slots=True)
class StreamTime:
    """One stream in a mean step; its causes add up to its idle time, and that and its work to the step.

    Attributes:
        rank: The rank; ``None`` in a run of one.
        device: The GPU in its process.
        stream: The stream.
        busy_us: Time in which something of it worked; collectives that wait for other ranks don't.
        idle_us: The rest of the step.
        causes: Names of the reasons and their times, longest first.
    """

    rank: int | None
    device: int | None
    stream: int | None
    busy_us: float
    idle_us: float
    causes: tuple[tuple[str, float], ...]


def build(run: Run) -> tuple[StreamTime, ...]:
    """The streams, by rank, device and number."""
    table = attribute(run, measured(run.graph), streams=True).by_stream()
    causes: dict[tuple[int | None, int | None, int | None, float, float], list[tuple[str, float]]] = {}
    for row in table.iter_rows(named=True):
        key = (row.get("rank"), row["device"], row["stream"], row["busy_us"], row["idle_us"])
        causes.setdefault(key, []).extend([(row["cause"], row["time_us"])] if row["cause"] else [])
    return tuple(StreamTime(*stream, tuple(why)) for stream, why in causes.items())
