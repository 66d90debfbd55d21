"""Events far outside the recording: their times are wrong, and nothing tells the right ones."""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.ingest.ledger import drop_read
from tracekit.messages import Message
from tracekit.messages import traces as messages
from tracekit.timing.arrays import ActivityTimes
from tracekit.trace import TABLE_NAMES, RankTrace

MIN_AWAY_NS = 60 * 10**9
"""Nothing at all happens for so long between the recording and what lies outside of it."""
MAX_OUTSIDE_FRACTION = 0.01
"""Larger parts of a trace may be a recording of their own."""


def drop_outside_window(trace: RankTrace) -> tuple[RankTrace, tuple[Message, ...]]:
    """Drop the few events that lie a minute or more outside the recording; activities only without a launch.

    A launched activity has a place on its stream, where it is put later.
    """
    tables = [trace.tables[name] for name in TABLE_NAMES]
    bounds = [(int(start.min()), int(_get_ends(t).max())) for t in tables if (start := t["ts_ns"].to_numpy()).size]
    if not bounds or max(end for _, end in bounds) - min(start for start, _ in bounds) < MIN_AWAY_NS:
        return trace, ()
    start = np.concatenate([table["ts_ns"].to_numpy() for table in tables])
    end = np.concatenate([_get_ends(table) for table in tables])
    parts = np.split(_find_outside(start, end), np.cumsum([table.height for table in tables])[:-1])
    parts[TABLE_NAMES.index("activities")] &= ~ActivityTimes.from_trace(trace).has_launch
    parts[TABLE_NAMES.index("calls")] |= _outlasts_all(trace, int(start.max()))
    found = np.concatenate(parts)
    if not found.any() or trace.captured is not None:
        return trace, ()
    kept = {name: t.filter(~pl.Series(part)) for name, t, part in zip(TABLE_NAMES, tables, parts, strict=True)}
    counts = {name: int(part.sum()) for name, part in zip(TABLE_NAMES, parts, strict=True) if part.any()}
    first = int(np.flatnonzero(found)[0])
    names = pl.concat([table["name"] for table in tables])
    middle = int(np.median(start))
    off_ns = max(abs(int(start[first]) - middle), abs(int(end[first]) - middle))
    message = messages.TIMES_OUTSIDE(count=int(found.sum()), name=str(names[first]), off_us=off_ns / 1e3)
    ledger = drop_read(trace.ledger, messages.TIMES_OUTSIDE, counts)
    within = replace(
        trace,
        ledger=ledger,
        ops=kept["ops"],
        annotations=kept["annotations"],
        calls=kept["calls"],
        activities=kept["activities"],
        syncs=kept["syncs"],
        overheads=kept["overheads"],
        frames=kept["frames"],
    )
    return within, (message,)


def _outlasts_all(trace: RankTrace, last_start: int) -> Bools:
    """Return which calls return a minute or more after the last event began and the GPU's last work ended."""
    last = max(last_start, int(_get_ends(trace.activities).max())) if trace.activities.height else last_start
    late: Bools = _get_ends(trace.calls) - last > MIN_AWAY_NS
    return late


def _get_ends(table: pl.DataFrame) -> Ints:
    ends: Ints = (table["ts_ns"] + table["dur_ns"]).to_numpy()
    return ends


def _find_outside(start: Ints, end: Ints) -> Bools:
    """Find the events apart from the others, if they are few.

    Nothing happens between them and the recording::

    x                     xxxxxxx xx xxxxx
      more than a minute
    """
    order = np.argsort(start, kind="stable")
    gap = start[order][1:] - np.maximum.accumulate(end[order])[:-1]
    part = np.concatenate([[0], np.cumsum(gap > MIN_AWAY_NS)])
    outside = np.zeros(start.size, np.bool_)
    outside[order] = part != part[part.size // 2]
    return outside if outside.mean() <= MAX_OUTSIDE_FRACTION else np.zeros_like(outside)
