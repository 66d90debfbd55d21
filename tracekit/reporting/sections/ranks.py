"""The ranks of a job: which ones wait, and which ones make the others wait."""

from dataclasses import dataclass
from typing import Annotated

from tracekit.analysis.stragglers import find_stragglers
from tracekit.format import format_clock_lead, format_percent
from tracekit.reporting.columns import Column
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class RankTime:
    """One rank in a mean step."""

    rank: Annotated[int, Column("Its number.", "rank")]
    busy_us: Annotated[float, Column("Its kernels' summed time, without waiting for other ranks.", "busy")]
    wait_us: Annotated[float, Column("How long its collectives waited for other ranks.", "waits")]
    last: Annotated[float, Column("Percent of its collectives to which it came last.", "comes last", format_percent)]
    held_up_us: Annotated[float, Column("By how much it was then later than all others, summed.", "holds up")]
    clock_ahead_us: Annotated[
        float | None, Column("How far its clock was ahead of the first rank's.", "clock", format_clock_lead)
    ]


def build_rank_times(run: MeasuredRun) -> tuple[RankTime, ...]:
    """Build the measured ranks; empty for a run of one rank."""
    return tuple(
        RankTime(rank, busy, wait, 100 * last, held_up, ahead)
        for rank, busy, wait, last, held_up, ahead in find_stragglers(run.program).iter_rows()
    )
