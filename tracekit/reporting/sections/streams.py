"""Causes of each stream's idle time in the measured run."""

from dataclasses import dataclass

from tracekit.analysis.gaps import STREAM_KEYS
from tracekit.analysis.idle import IdleBreakdown
from tracekit.analysis.queues import measure_queues
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
        queued: Mean number of its activities that were launched and hadn't begun.
        most_queued: The most of them at a time.
        causes: Names of the causes and their times, longest first.
    """

    rank: int | None
    device: int | None
    stream: int | None
    busy_us: float
    idle_us: float
    queued: float
    most_queued: int
    causes: tuple[tuple[str, float], ...]


def build_stream_times(run: MeasuredRun, idle: IdleBreakdown) -> tuple[StreamTime, ...]:
    """Build the streams, sorted by rank, device and number.

    Args:
        run: The measured run.
        idle: Idle time of its streams, by cause.
    """
    table = idle.sum_by_stream().join(measure_queues(run.program), on=list(STREAM_KEYS), how="left", nulls_equal=True)
    steps = max(run.chosen_steps["step"].n_unique(), 1)
    built: dict[tuple[int | None, ...], StreamTime] = {}
    for row in table.iter_rows(named=True):
        key = tuple(row[name] for name in STREAM_KEYS)
        before = built[key].causes if key in built else ()
        step_us = row["busy_us"] + row["idle_us"]
        built[key] = StreamTime(
            rank=row["rank"] if len(run.ranks) > 1 else None,  # one rank isn't named
            device=row["device"],
            stream=row["stream"],
            busy_us=row["busy_us"],
            idle_us=row["idle_us"],
            queued=(row["waited_us"] or 0.0) / (step_us * steps) if step_us else 0.0,
            most_queued=row["most_queued"] or 0,
            causes=(*before, (row["cause"], row["time_us"])) if row["cause"] else before,
        )
    return tuple(built.values())
