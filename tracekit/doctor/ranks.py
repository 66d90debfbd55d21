"""Checks of completeness: whether all ranks and all events were read."""

from collections.abc import Iterator

from tracekit.doctor.model import Check, CheckContext, Status, grade_cost
from tracekit.messages import Message, trace_contents, trace_files
from tracekit.messages import doctor_checks as told
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
        return Check("ranks", "Ranks", Status.OK, told.RANKS_ALL_READ(ranks=world))
    evidence, fix = told.RANKS_READ(ranks_read=len(read), ranks=world), told.RANKS_MISSING_FIX()
    if len(read) > 1:
        return Check("ranks", "Ranks", Status.WARN, evidence, told.RANKS_MISSING_COST(), fix=fix)
    cost = context.to_step_pct(context.run.measured_step.exposed_comm_us)
    alone = told.RANKS_ALONE_COST(step_pct=cost)
    return Check("ranks", "Ranks", grade_cost(cost, warn=0), evidence, alone, cost, fix)


def check_lost_events(context: CheckContext) -> Check:
    """Warn if events were lost."""
    losses = [warning for rank in context.trace.ranks for warning in rank.warnings if warning.template in LOSSES]
    if not losses:
        return Check("events", "Events", Status.OK, told.EVENTS_KEPT())
    cost = max(part for rank in context.trace.ranks for part in _estimate_lost_pct(rank))
    return Check(
        "events",
        "Events",
        grade_cost(cost, warn=0),
        told.EVENTS_MISSING(losses=[*dict.fromkeys(losses)]),
        told.EVENTS_MISSING_COST(lost_pct=cost) if cost else told.EVENTS_UNCOUNTED_COST(),
        cost,
        told.EVENTS_MISSING_FIX(),
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
