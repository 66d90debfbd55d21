"""A rank that the others wait for."""

from collections.abc import Iterator

from tracekit.replay.stragglers import stragglers
from tracekit.reporting.findings.case import ROWS, Case
from tracekit.reporting.findings.model import Evidence, Finding
from tracekit.units import duration, percent


def find(case: Case) -> Iterator[Finding]:
    """Fires if a rank comes later than all others by a hundredth of the step; it can save no more than that."""
    ranks = stragglers(case.run).sort("held_up_us", descending=True)
    if ranks.is_empty() or not case.worth(ranks["held_up_us"][0]):
        return
    worst = ranks.row(0, named=True)
    last = percent(100 * worst["last_share"])
    yield Finding(
        kind="straggler",
        title=f"The others wait for rank {worst['rank']}: it comes last to {last} of its collectives.",
        advice="Look at what it does more: data loading, logging, uneven shards or experts, a slower GPU or CPU.",
        saves_us=worst["held_up_us"],
        evidence=tuple(
            Evidence(
                f"rank {row['rank']}",
                row["held_up_us"],
                f"busy {duration(row['busy_us'])}, waits {duration(row['wait_us'])}",
            )
            for row in ranks.head(ROWS).iter_rows(named=True)
        ),
    )
