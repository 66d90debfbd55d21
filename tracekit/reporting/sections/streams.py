"""Causes of each stream's idle time in the measured run."""

from dataclasses import dataclass
from typing import Annotated

from tracekit.analysis.gaps import STREAM_KEYS
from tracekit.analysis.idle import IdleBreakdown
from tracekit.analysis.queues import measure_queues
from tracekit.format import format_number
from tracekit.reporting.columns import Column
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class StreamTime:
    """One stream in a mean step; its causes add up to its idle time, and idle and busy time to the step.

    Attributes:
        causes: Names of the causes and their times, longest first.
    """

    rank: Annotated[int | None, Column("The rank; blank in a run of one.")]
    device: Annotated[int | None, Column("The GPU in its process.")]
    stream: Annotated[int | None, Column("The stream.", "stream")]
    busy_us: Annotated[float, Column("Time in a mean step in which something of it worked.", "works")]
    idle_us: Annotated[float, Column("The rest of the step; the reasons add up to it.", "idle")]
    queued: Annotated[
        float, Column("How many of its activities were launched and hadn't begun, on average.", "queued", format_number)
    ]
    most_queued: Annotated[int, Column("The most of them at a time.", "at most")]
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
