"""What became of the events in the files: read, left out, changed or guessed."""

from dataclasses import dataclass

import polars as pl

from tracekit import schema
from tracekit.ingest.ledger import count_events, describe_events
from tracekit.messages import Message
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class EventGroup:
    """Events of one category and phase that fared alike, of all ranks.

    Attributes:
        kind: Code of what became of them, as in the list of messages.
        effect: ``read``, ``dropped``, ``changed`` or ``guessed``; what is changed or guessed is among what is read.
        unit: What is counted: ``events``, or ``bytes``, ``keys`` and ``names``.
        category: Category; of events that are read, their table; empty without one.
        phase: Phase in Chrome's trace format; empty for several.
        count: How many.
        first_event: Number of the first in its file, from 0; ``None`` if unknown.
        first_byte: Where that is in the uncompressed file; ``None`` unless it is damaged.
        severity: ``note``, or ``warning`` if predictions may suffer.
    """

    kind: str
    effect: str
    unit: str
    category: str
    phase: str
    count: int
    first_event: int | None
    first_byte: int | None
    severity: str


@dataclass(frozen=True, slots=True)
class EventLedger:
    """The ledger of all files.

    Attributes:
        events: Number of events in them.
        read: How many of these were read.
        summary: What most of the others are.
        groups: The events by what became of them.
    """

    events: int
    read: int
    summary: Message
    groups: tuple[EventGroup, ...]


def build_event_ledger(run: MeasuredRun) -> EventLedger:
    """Build the ledger of a run's ranks; the first event is that of the first rank that has one."""
    keys = ("kind", "effect", "unit", "category", "phase", "severity")
    whole = (
        pl.concat([rank.ledger for rank in run.ranks])
        .group_by(keys, maintain_order=True)
        .agg(pl.col("count").sum(), pl.col("first_event", "first_byte").drop_nulls().first())
    )
    table = schema.LEDGER.conform(whole)
    events, read = count_events(table)
    groups = tuple(EventGroup(**row) for row in table.iter_rows(named=True))
    return EventLedger(events, read, describe_events(table), groups)
