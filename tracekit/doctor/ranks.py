"""Checks of completeness: whether all ranks and all events were read."""

from collections.abc import Iterator

from tracekit.doctor.model import Check, CheckContext, Status, grade_cost
from tracekit.messages import Message, trace_contents, trace_files
from tracekit.trace import RankTrace

DROPPED_EVENTS = (trace_contents.EVENTS_UNTIMED, trace_contents.EVENTS_DISTANT)
LOSSES = frozenset(
    (
        *DROPPED_EVENTS,
        trace_contents.EVENTS_LOST,
        trace_contents.EVENTS_CUT,
        trace_contents.METADATA_LOST,
        trace_contents.STEP_MARKS_UNNUMBERED,
        trace_contents.OP_INPUTS_MALFORMED,
        trace_contents.ACTIVITY_SIZES_IMPOSSIBLE,
        trace_files.ZIP_DATA_DAMAGED,
        trace_files.COMPRESSED_DATA_CUT,
        trace_files.COMPRESSED_DATA_CORRUPT,
    )
)
"""Warnings about parts of a file that were not read."""


def check_all_ranks(context: CheckContext) -> Check | None:
    """Warn if ranks of the job are missing."""
    world = context.rank.world_size
    if world <= 1:
        return None
    read = {rank.rank for rank in context.trace.ranks}
    if len(read) >= world:
        return Check("ranks", "Ranks", Status.OK, f"all {world} ranks")
    told, fix = f"{len(read)} of {world} ranks", "record every rank, and name the folder with all their traces"
    if len(read) > 1:
        return Check(
            "ranks", "Ranks", Status.WARN, told, "the others are assumed to arrive when a like rank does", fix=fix
        )
    cost = context.to_step_pct(context.run.measured_step.exposed_comm_us)
    alone = f"{cost:.0f} % of the step runs only collectives; how much of it is waiting for other ranks can't be told"
    return Check("ranks", "Ranks", grade_cost(cost, warn=0), told, alone, cost, fix)


def check_lost_events(context: CheckContext) -> Check:
    """Warn if events were lost."""
    losses = [warning for rank in context.trace.ranks for warning in rank.warnings if warning.template in LOSSES]
    if not losses:
        return Check("events", "Events", Status.OK, "none lost")
    cost = max(part for rank in context.trace.ranks for part in _estimate_lost_pct(rank))
    return Check(
        "events",
        "Events",
        grade_cost(cost, warn=0),
        " ".join(dict.fromkeys(map(str, losses))),
        f"about {cost:.2g} % of what happened is missing" if cost else "what is missing counts as idle time",
        cost,
        "copy or record the file again",
    )


def _estimate_lost_pct(rank: RankTrace) -> Iterator[float]:
    """Estimate the percent of events that each loss concerns; 0 if the loss isn't counted."""
    yield 0.0
    read = sum(table.height for table in rank.tables.values())
    for warning in rank.warnings:
        if warning.template is trace_contents.EVENTS_LOST:
            yield 100 * _get_count(warning, "lost") / _get_count(warning, "events")
        elif warning.template in DROPPED_EVENTS:
            lost = _get_count(warning, "events")
            yield 100 * lost / (read + lost)


def _get_count(message: Message, name: str) -> int:
    count = message.values[name]
    return count if isinstance(count, int) else 0
