"""The ranks of a job: who waits, and who makes the others wait."""

from dataclasses import dataclass

from tracekit.replay.run import Run
from tracekit.replay.stragglers import stragglers


@dataclass(frozen=True, slots=True)
class RankTime:
    """One rank in a mean step.

    Attributes:
        rank: Its number.
        busy_us: Its kernels' summed time, without waiting for other ranks.
        wait_us: What its collectives waited for other ranks.
        last: Percent of its collectives to which it came last.
        held_up_us: By how much it was then later than all others, summed: what the job could gain at most if this rank
            alone came earlier.
        clock_ahead_us: How far its clock was ahead of the first rank's; ``None`` if no collective tells.
    """

    rank: int
    busy_us: float
    wait_us: float
    last: float
    held_up_us: float
    clock_ahead_us: float | None


def build(run: Run) -> tuple[RankTime, ...]:
    """The measured ranks; none for a run of one."""
    return tuple(
        RankTime(rank, busy, wait, 100 * last, held_up, ahead)
        for rank, busy, wait, last, held_up, ahead in stragglers(run).iter_rows()
    )
