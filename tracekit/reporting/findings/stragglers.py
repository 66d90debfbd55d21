"""Finding: a rank that the others wait for."""

from collections.abc import Iterator

from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.stragglers import find_stragglers
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import MAX_EVIDENCE_ROWS, FindingContext
from tracekit.reporting.findings.finding import Evidence, Finding


def find_straggler(context: FindingContext) -> Iterator[Finding]:
    """Find a rank that arrives later than all others by at least 1 % of the step; it can save no more than that."""
    if context.run.collectives is None:
        return
    ranks = find_stragglers(context.run.program).sort("held_up_us", descending=True)
    if ranks.is_empty() or not context.is_worth_reporting(ranks["held_up_us"][0]):
        return
    worst = ranks.row(0, named=True)
    yield Finding(
        message=told.STRAGGLER(rank=worst["rank"], last_pct=100 * worst["last_share"]),
        saves_us=worst["held_up_us"],
        evidence=tuple(
            Evidence(
                f"rank {row['rank']}",
                row["held_up_us"],
                shown.RANK_BUSY_AND_WAITING(busy_us=row["busy_us"], wait_us=row["wait_us"]),
            )
            for row in ranks.head(MAX_EVIDENCE_ROWS).iter_rows(named=True)
        ),
        parts=(IdleCause.RENDEZVOUS.value,),
    )
