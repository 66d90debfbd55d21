"""The ledger of a file: what became of each of its events, so that nothing is left out in silence.

Events are counted while a file is decoded; the ledger is a table of the counts.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tracekit import schema
from tracekit.bounds import MAX_CATEGORY_CHARS, MAX_EVENT_KINDS
from tracekit.format import format_quantity
from tracekit.ingest.fields import ACTIVITY_KINDS, CONTROL_CHARACTERS
from tracekit.messages import Message, Severity, Template, traces

OTHER_CATEGORIES = "others"


@dataclass(slots=True)
class EventCount:
    """Events of one category and phase that fared alike.

    Attributes:
        template: What became of them.
        category: Their category, or the table that they belong to; empty without one.
        phase: Their phase; empty without one, or where several count together.
        count: Number of them.
        first_event: Number of the first in the file, from 0; ``None`` if unknown.
        first_byte: Where it is, if it is damaged; else ``None``.
    """

    template: Template
    category: str
    phase: str
    count: int
    first_event: int | None
    first_byte: int | None = None


class EventCounts:
    """The counts; the first event of a kind is the one with the lowest number."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], EventCount] = {}

    def add(
        self,
        template: Template,
        category: str = "",
        phase: str = "",
        *,
        count: int = 1,
        first: int | None = None,
        at_byte: int | None = None,
    ) -> None:
        """Count events by their category, or by the table that they belong to."""
        category, phase = clean_category(category), clean_category(phase)
        key = (template.code, category, phase)
        known = self._counts.get(key)
        if known is None:
            self._counts[key] = EventCount(template, category, phase, count, first, at_byte)
            return
        known.count += count
        if first is not None and (known.first_event is None or first < known.first_event):
            known.first_event, known.first_byte = first, at_byte

    def count(self, template: Template) -> int:
        """Return the number of events that fared so."""
        return sum(one.count for one in self.select(template))

    def select(self, template: Template) -> list[EventCount]:
        """Return the kinds that fared so."""
        return [one for one in self if one.template is template]

    def __iter__(self) -> Iterator[EventCount]:
        """Yield the kinds in order of their first event; those beyond ``MAX_EVENT_KINDS`` of a template as one."""
        ordered = sorted(
            self._counts.values(),
            key=lambda one: (one.first_event is None, one.first_event or 0, one.template.code, one.category, one.phase),
        )
        shown: Counter[str] = Counter()
        rest = EventCounts()
        for one in ordered:
            shown[one.template.code] += 1
            if shown[one.template.code] <= MAX_EVENT_KINDS:
                yield one
            else:
                rest.add(one.template, OTHER_CATEGORIES, count=one.count, first=one.first_event, at_byte=one.first_byte)
        yield from rest._counts.values()


def clean_category(category: str | None) -> str:
    """Return a category for display: short, without control characters."""
    return re.sub(CONTROL_CHARACTERS, "\N{REPLACEMENT CHARACTER}", (category or "")[:MAX_CATEGORY_CHARS])


READ, DROPPED, CHANGED, GUESSED = "read", "dropped", "changed", "guessed"
EVENTS = "events"

_EFFECTS: dict[Template, tuple[str, str]] = {
    traces.EVENTS_READ: (READ, EVENTS),
    traces.CATEGORY_NOT_READ: (DROPPED, EVENTS),
    traces.PHASE_NOT_READ: (DROPPED, EVENTS),
    traces.SPANS_UNMATCHED: (DROPPED, EVENTS),
    traces.EVENTS_LOST: (DROPPED, EVENTS),
    traces.EVENTS_UNTIMED: (DROPPED, EVENTS),
    traces.EVENTS_DISTANT: (DROPPED, EVENTS),
    traces.EVENTS_REPAIRED: (CHANGED, EVENTS),
    traces.EVENTS_BACKWARD: (CHANGED, EVENTS),
    traces.OP_INPUTS_MALFORMED: (CHANGED, EVENTS),
    traces.ACTIVITY_SIZES_IMPOSSIBLE: (CHANGED, EVENTS),
    traces.STEP_MARKS_UNNUMBERED: (CHANGED, EVENTS),
    traces.RANGES_WITHOUT_THREAD: (CHANGED, EVENTS),
    traces.TIMES_ABSOLUTE: (CHANGED, EVENTS),
    traces.IDS_AMBIGUOUS: (CHANGED, EVENTS),
    traces.IDS_EXTERNAL: (GUESSED, EVENTS),
    traces.IDS_BY_ORDER: (GUESSED, EVENTS),
    traces.NAMES_CHANGED: (CHANGED, "names"),
    traces.METADATA_NOT_READ: (DROPPED, "keys"),
    traces.METADATA_LOST: (DROPPED, "keys"),
    traces.DATA_BEHIND_TRACE: (DROPPED, "bytes"),
    traces.EVENTS_CUT: (DROPPED, "bytes"),
}
"""Effect and unit of each kind."""

HARMLESS_CATEGORIES = frozenset(
    (
        *("python_function", "Trace", "fwdbwd", "ac2g", "async_cpu_to_gpu", "async"),
        *("gpu_user_annotation", "external_correlation", "cuda_profiler_range"),
    )
)
"""Categories that aren't read and are no device's work: Python calls (unless asked for), arrows, the profiler."""

MOST_SHOWN = 3


def build_ledger(counts: EventCounts) -> pl.DataFrame:
    """Build the ledger (``schema.LEDGER``): what was read first, then the rest by severity and count."""
    ordered = sorted(
        counts,
        key=lambda one: (
            _EFFECTS[one.template][0] != READ,
            _get_severity(one) != Severity.WARNING,
            -one.count,
            one.template.code,
            one.category,
            one.phase,
        ),
    )
    rows = [_build_row(one) for one in ordered]
    return schema.LEDGER.build_frame({name: [row[name] for row in rows] for name in schema.LEDGER.dtypes})


def _build_row(one: EventCount) -> dict[str, object]:
    effect, unit = _EFFECTS[one.template]
    return {
        "kind": one.template.code,
        "effect": effect,
        "unit": unit,
        "category": one.category,
        "phase": one.phase,
        "count": one.count,
        "first_event": one.first_event,
        "first_byte": one.first_byte,
        "severity": _get_severity(one).value,
    }


def _get_severity(one: EventCount) -> Severity:
    return Severity.NOTE if is_harmless(one) else one.template.severity


def is_harmless(one: EventCount) -> bool:
    """Return whether events that aren't read are known not to be a device's work."""
    known = one.category in HARMLESS_CATEGORIES or (not one.category and one.phase == "i")
    return one.template is traces.CATEGORY_NOT_READ and known


def count_events(table: pl.DataFrame) -> tuple[int, int]:
    """Return how many events a ledger holds, and how many of them were read."""
    events = table.filter(pl.col("unit") == EVENTS, pl.col("effect").is_in([READ, DROPPED]))
    return int(events["count"].sum()), int(events.filter(pl.col("effect") == READ)["count"].sum())


def describe_events(table: pl.DataFrame) -> Message:
    """Return how many events were read, and what most of the others are."""
    events, read = count_events(table)
    if events == read:
        return traces.EVENTS_ALL_READ(events=events)
    dropped = table.filter(pl.col("unit") == EVENTS, pl.col("effect") == DROPPED)
    named = pl.when(pl.col("category") != "").then("category").when(pl.col("phase") == "M").then(pl.lit("metadata"))
    groups = (
        dropped.with_columns(name=named.otherwise(pl.lit("unnamed")), urgent=pl.col("severity") == Severity.WARNING)
        .group_by("name")
        .agg(pl.col("count").sum(), pl.col("urgent").any())
        .sort("urgent", "count", "name", descending=[True, True, False])
    )
    shown = [f"{count:,} {name}" for name, count in groups.head(MOST_SHOWN).select("name", "count").iter_rows()]
    rest = int(groups["count"][MOST_SHOWN:].sum())
    others = [f"{rest:,} others"] if rest else []
    return traces.EVENTS_COUNTED(read=read, events=events, left_out=[*shown, *others])


def warn_of_dropped(counts: EventCounts) -> Iterator[Message]:
    """Yield what of the file isn't read but may be a device's work."""
    unread = [one for one in counts.select(traces.CATEGORY_NOT_READ) if not is_harmless(one)]
    if unread:
        categories: dict[str, int] = {}
        for one in unread:
            categories[one.category or "no"] = categories.get(one.category or "no", 0) + one.count
        named = [format_quantity(count, f"{name} event") for name, count in categories.items()]
        yield traces.CATEGORY_NOT_READ(events=sum(categories.values()), categories=named[: 2 * MOST_SHOWN])
    unmatched = counts.count(traces.SPANS_UNMATCHED)
    if unmatched:
        yield traces.SPANS_UNMATCHED(events=unmatched)


def share_read(whole: pl.DataFrame, first: pl.DataFrame, others: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the ledger of a file's first rank: all of the file but what was read of the other ranks."""
    for other in others:
        for name, count in other.filter(pl.col("effect") == READ).select("category", "count").iter_rows():
            whole = _subtract_read(whole, (name,), count)
    is_read = first["effect"] == READ
    return whole if is_read.all() else pl.concat([whole, first.filter(~is_read)])


def drop_read(table: pl.DataFrame, template: Template, counts: Mapping[str, int]) -> pl.DataFrame:
    """Return the ledger after events that were read are left out.

    Args:
        table: The ledger.
        template: Why they are.
        counts: Number of them by table.
    """
    kinds = {"activities": ACTIVITY_KINDS}
    for name, count in counts.items():
        table = _append(_subtract_read(table, kinds.get(name, (name,)), count), template, DROPPED, name, count)
    return table


def _subtract_read(table: pl.DataFrame, categories: Sequence[str], count: int) -> pl.DataFrame:
    """Lower the counts of what was read of some tables, in order, by a number altogether."""
    read = (pl.col("effect") == READ) & pl.col("category").is_in(categories)
    before = pl.when(read).then("count").otherwise(0).cum_sum() - pl.col("count")
    taken = (count - before).clip(0, pl.col("count"))
    return table.with_columns(count=pl.col("count") - pl.when(read).then(taken).otherwise(0))


def add_bytes(table: pl.DataFrame, at_byte: int, size: int) -> pl.DataFrame:
    """Return the ledger with bytes behind the end of the trace."""
    behind = EventCounts()
    behind.add(traces.DATA_BEHIND_TRACE, at_byte=at_byte, count=size)
    return pl.concat([table, build_ledger(behind)])


def add_change(table: pl.DataFrame, template: Template, name: str, count: int) -> pl.DataFrame:
    """Return the ledger with events of a table whose times were changed."""
    return _append(table, template, CHANGED, name, count)


def _append(table: pl.DataFrame, template: Template, effect: str, category: str, count: int) -> pl.DataFrame:
    row = {"kind": template.code, "effect": effect, "unit": EVENTS, "category": category, "phase": "", "count": count}
    values = {name: [value] for name, value in (row | {"severity": template.severity.value}).items()}
    return pl.concat([table, schema.LEDGER.build_frame(values)])
