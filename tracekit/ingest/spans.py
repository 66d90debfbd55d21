"""Begin and end events (phases B and E), which together are one event with a duration."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.ingest.event_decoder import BEGIN, END, KinetoEvent, convert_to_ns
from tracekit.ingest.fields import NULL, select_categories
from tracekit.ingest.ledger import EventCounts
from tracekit.messages.traces import CATEGORY_NOT_READ, EVENTS_READ, SPANS_UNMATCHED


def join_spans(
    events: Sequence[KinetoEvent], counts: EventCounts, stacks: bool = False, numbers: Ints | None = None
) -> tuple[list[KinetoEvent], Ints]:
    """Join begins and ends to events with a duration.

    An end belongs to the last begin of its thread that is still open, as Chrome's trace format says. Where both name
    themselves differently, an event between them is missing, and both are left out.

    Args:
        events: Events of any phase.
        counts: Where ends, and begins without one, are counted.
        stacks: Whether Python calls are read.
        numbers: Number of each event in the file; by default from 0 on.

    Returns:
        The events without begins and ends, but with the joined ones, and their numbers.
    """
    numbers = np.arange(len(events)) if numbers is None else numbers
    marks = [row for row, one in enumerate(events) if one.ph in (BEGIN, END)]
    if not marks:
        return list(events), numbers
    start = convert_to_ns([bytes(events[row].ts) for row in marks])
    begin, end = _match([events[row] for row in marks], start)
    table_of = select_categories(stacks)
    names: dict[tuple[object, object, int], set[object]] = defaultdict(set)
    for row, at in zip(marks, start.tolist(), strict=True):
        if events[row].ph == END:
            names[events[row].pid, events[row].tid, at].add(events[row].name)
    joined: dict[int, KinetoEvent] = {}
    for first, last in zip(begin.tolist(), end.tolist(), strict=True):
        opening, closing = events[marks[first]], events[marks[last]]
        if not names[closing.pid, closing.tid, int(start[last])] & {None, opening.name}:
            continue
        dur = f"{(start[last] - start[first]) // 1000}.{(start[last] - start[first]) % 1000:03}".encode()
        whole = {"ph": "X", "dur": msgspec.Raw(dur), "args": opening.args or closing.args}
        joined[marks[first]] = msgspec.structs.replace(opening, **whole)
        joined[marks[last]] = closing
        template = EVENTS_READ if opening.cat in table_of else CATEGORY_NOT_READ
        counts.add(template, table_of.get(opening.cat or "", opening.cat or ""), END, first=int(numbers[marks[last]]))
    for row in set(marks) - joined.keys():
        counts.add(SPANS_UNMATCHED, events[row].cat or "", events[row].ph, first=int(numbers[row]))
    kept = [row for row, one in enumerate(events) if one.ph not in (BEGIN, END) or (row in joined and one.ph == BEGIN)]
    return [joined.get(row, events[row]) for row in kept], numbers[kept]


def _match(marks: Sequence[KinetoEvent], start: Ints) -> tuple[Ints, Ints]:
    """Return the rows of the matched begins, and of the end of each.

    Of one depth, begins and ends follow each other::

    B1  B2  E2  B3  E3  E1
    1   2   2   2   2   1       the same depth follow each other
    """
    table = pl.DataFrame(
        {
            "row": np.arange(len(marks)),
            "ts": start,
            "thread": [f"{one.pid} {one.tid}" for one in marks],
            "step": [1 if one.ph == BEGIN else -1 for one in marks],
        }
    )
    ordered = table.filter(pl.col("ts") != NULL).sort("thread", "ts", maintain_order=True)
    deep = pl.col("step").cum_sum().over("thread")
    lowest = pl.min_horizontal(deep.cum_min().over("thread"), 0)
    ordered = ordered.with_columns(deep=deep, lowest=lowest)
    before = pl.col("lowest").shift(fill_value=0).over("thread")
    ordered = ordered.filter((pl.col("step") == 1) | (pl.col("deep") >= before))
    depth = pl.col("deep") - pl.col("lowest") + (pl.col("step") == -1)
    by_depth = ordered.sort("thread", depth, maintain_order=True)
    same: Bools = (
        by_depth.select(
            (
                (pl.col("step") == 1)
                & (pl.col("step").shift(-1) == -1)
                & (pl.col("thread") == pl.col("thread").shift(-1))
                & (depth == depth.shift(-1))
            ).fill_null(False)
        )
        .to_series()
        .to_numpy()
    )
    first = np.flatnonzero(same)
    rows = by_depth["row"].to_numpy()
    return rows[first], rows[first + 1]
