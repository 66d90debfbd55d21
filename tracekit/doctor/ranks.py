"""Whether everything that was recorded was read: all ranks, all events."""

import re
from collections.abc import Iterator

from tracekit.doctor.model import Case, Check, Status, by_cost
from tracekit.trace import RankTrace

LOSS = re.compile(r"\blost\b|left out|damaged|cut short|truncated")
COUNTED = re.compile(r"([\d,]+)(?: of ([\d,]+))? events")


def complete(case: Case) -> Check | None:
    """Warns if ranks of the job are missing."""
    world = case.rank.world_size
    if world <= 1:
        return None
    read = {rank.rank for rank in case.trace.ranks}
    if len(read) >= world:
        return Check("ranks", "Ranks", Status.OK, f"all {world} ranks")
    told, fix = f"{len(read)} of {world} ranks", "record every rank, and name the folder with all their traces"
    if len(read) > 1:
        return Check(
            "ranks", "Ranks", Status.WARN, told, "the others are assumed to arrive when a like rank does", fix=fix
        )
    cost = case.of_step(case.run.measured.exposed_comm_us)
    alone = f"{cost:.0f} % of the step runs only collectives; how much of it is waiting for other ranks can't be told"
    return Check("ranks", "Ranks", by_cost(cost, warn=0), told, alone, cost, fix)


def undamaged(case: Case) -> Check:
    """Warns if events were lost."""
    losses = [warning for rank in case.trace.ranks for warning in rank.warnings if LOSS.search(warning)]
    if not losses:
        return Check("events", "Events", Status.OK, "none lost")
    cost = max(part for rank in case.trace.ranks for part in _lost_pct(rank))
    return Check(
        "events",
        "Events",
        by_cost(cost, warn=0),
        "; ".join(dict.fromkeys(losses)),
        f"about {cost:.2g} % of what happened is missing" if cost else "what is missing counts as idle time",
        cost,
        "copy or record the file again",
    )


def _lost_pct(rank: RankTrace) -> Iterator[float]:
    """How much of the events each loss is; 0 where it isn't counted."""
    yield 0.0
    read = sum(table.height for table in rank.tables.values())
    for warning in rank.warnings:
        counted = COUNTED.search(warning)
        if LOSS.search(warning) and counted:
            lost = _number(counted[1])
            yield 100 * lost / (_number(counted[2]) if counted[2] else read + lost)


def _number(digits: str) -> int:
    return int(digits.replace(",", ""))
