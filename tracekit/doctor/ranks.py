"""Checks of completeness: whether all ranks and all events were read."""

import polars as pl

from tracekit.doctor.model import Check, CheckContext, Status, grade_cost
from tracekit.ingest.ledger import DROPPED, EVENTS, READ, describe_events
from tracekit.messages import Severity, traces
from tracekit.messages import doctor_checks as told
from tracekit.messages import traces as ledger_messages

LOSSES = frozenset(
    (
        traces.EVENTS_UNTIMED,
        traces.EVENTS_DISTANT,
        traces.EVENTS_LOST,
        traces.EVENTS_CUT,
        traces.STEPS_CUT,
        traces.METADATA_LOST,
        traces.STEP_MARKS_UNNUMBERED,
        traces.OP_INPUTS_MALFORMED,
        traces.ACTIVITY_SIZES_IMPOSSIBLE,
        ledger_messages.CATEGORY_NOT_READ,
        ledger_messages.SPANS_UNMATCHED,
        traces.ZIP_DATA_DAMAGED,
        traces.COMPRESSED_DATA_CUT,
        traces.COMPRESSED_DATA_CORRUPT,
    )
)
"""Warnings about parts of a file that were not read."""

UNKNOWN_LOSSES = frozenset((traces.EVENTS_CUT, traces.STEPS_CUT))
"""Those that leave unknown how much was lost."""


def check_all_ranks(context: CheckContext) -> Check | None:
    """Warn if ranks of the job are missing."""
    world = context.rank.world_size
    if world <= 1:
        return None
    if context.lacking:
        lacking = context.lacking.to_message()
        return Check("ranks", "Ranks", Status.FAIL, lacking, told.RANKS_MISSING_COST(), fix=told.RANKS_LACKING_FIX())
    read = len({rank.rank for rank in context.trace.ranks}) + context.beside
    if read >= world:
        return Check("ranks", "Ranks", Status.OK, told.RANKS_ALL_READ(ranks=world))
    evidence, fix = told.RANKS_READ(ranks_read=read, ranks=world), told.RANKS_MISSING_FIX()
    if read > 1:
        return Check("ranks", "Ranks", Status.WARN, evidence, told.RANKS_MISSING_COST(), fix=fix)
    cost = context.to_step_pct(context.run.measured_step.exposed_comm_us)
    alone = told.RANKS_ALONE_COST(step_pct=cost)
    return Check("ranks", "Ranks", grade_cost(cost, warn=0), evidence, alone, cost, fix)


def check_lost_events(context: CheckContext) -> Check:
    """Warn if events were lost."""
    losses = [warning for rank in context.trace.ranks for warning in rank.warnings if warning.template in LOSSES]
    if not losses:
        return Check("events", "Events", Status.OK, describe_events(context.rank.ledger))
    cost = max(_compute_lost_pct(rank.ledger) for rank in context.trace.ranks)
    return Check(
        "events",
        "Events",
        Status.FAIL if any(one.template in UNKNOWN_LOSSES for one in losses) else grade_cost(cost, warn=0),
        told.EVENTS_MISSING(losses=[*dict.fromkeys(losses)]),
        told.EVENTS_MISSING_COST(lost_pct=cost) if cost else told.EVENTS_UNCOUNTED_COST(),
        cost,
        told.EVENTS_MISSING_FIX(),
    )


def _compute_lost_pct(ledger: pl.DataFrame) -> float:
    """Compute the percent of events that are missing, among those and the ones that were read."""
    events = ledger.filter(pl.col("unit") == EVENTS)
    is_lost = (pl.col("effect") == DROPPED) & (pl.col("severity") == Severity.WARNING)
    lost = int(events.filter(is_lost)["count"].sum())
    read = int(events.filter(pl.col("effect") == READ)["count"].sum())
    return 100 * lost / max(lost + read, 1)
