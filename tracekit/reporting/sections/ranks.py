"""The ranks of a job: which ones wait, and which ones make the others wait."""

from dataclasses import dataclass

from tracekit.analysis.stragglers import find_stragglers
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class RankTime:
    """One rank in a mean step.

    Attributes:
        rank: Its number.
        busy_us: Summed time of its kernels, without waiting for other ranks.
        wait_us: Time that its collectives waited for other ranks.
        last: Percent of its collectives at which it arrived last.
        held_up_us: By how much it was then later than all others, summed: the most that the job could save if only this
            rank arrived earlier.
        clock_ahead_us: How far its clock was ahead of the first rank's; ``None`` if no collective shows it.
    """

    rank: int
    busy_us: float
    wait_us: float
    last: float
    held_up_us: float
    clock_ahead_us: float | None


def build_rank_times(run: MeasuredRun) -> tuple[RankTime, ...]:
    """Build the measured ranks; empty for a run of one rank."""
    return tuple(
        RankTime(rank, busy, wait, 100 * last, held_up, ahead)
        for rank, busy, wait, last, held_up, ahead in find_stragglers(run.program).iter_rows()
    )
