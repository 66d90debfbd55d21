"""Recorded times checked against physics, before a graph is built from them.

A kernel starts after its launch; activities of a stream end in order; a blocking call returns after what it waited for.
Public traces hold all three within 4 us. Times that break them are corrected where the cause is clear, and counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.ingest.ledger import add_change, drop_read
from tracekit.messages import Message, Template
from tracekit.messages import traces as messages
from tracekit.timing.arrays import TOLERANCE_NS, ActivityTimes, BlockingReturns, find_blocking_returns
from tracekit.timing.clocks import ClockShift, estimate_shift
from tracekit.timing.faults import (
    clip_overruns,
    cut_overrunning_calls,
    cut_overrunning_ops,
    find_displaced,
    lengthen_waits,
    lengthen_zeros,
    place_displaced,
)
from tracekit.trace import TABLE_NAMES, RankTrace

TABLES = {messages.WAITS_TOO_SHORT: "calls", messages.CALLS_OVERRUN: "calls", messages.OPS_OVERRUN: "ops"}
"""Which events have a fault; those of the others are activities."""
MIN_AWAY_NS = 60 * 10**9
"""Nothing at all happens for so long between the recording and what lies outside of it."""
MAX_OUTSIDE_FRACTION = 0.01
"""Larger parts of a trace may be a recording of their own."""


def correct_times(trace: RankTrace) -> tuple[RankTrace, tuple[Message, ...]]:
    """Correct the times that break physics, and leave out the events whose time nothing tells.

    Returns:
        The trace with corrected events, the same object if all times are right; and a message per kind of fault.
    """
    within, outside = drop_outside_window(trace)
    within, overruns = _cut_overruns(within)
    recorded = ActivityTimes.from_trace(within)
    waited, waits = lengthen_waits(within, recorded)
    returns = find_blocking_returns(waited, recorded)
    displaced = find_displaced(recorded, returns)
    placed = place_displaced(recorded, displaced)
    clipped_times, clipped = clip_overruns(placed)
    shift = estimate_shift(clipped_times, returns, displaced | clipped)
    shifted = shift.apply(clipped_times) if shift else clipped_times
    single, moved, cut = _correct_single(shifted, returns)
    times, zeros = lengthen_zeros(waited, single, returns)
    displaced, clipped = displaced | moved, clipped | cut
    if shift is None and not (displaced | clipped | zeros).any() and not waits.size:
        return record_faults(within, overruns), (*outside, *overruns)
    found = (
        *outside,
        *overruns,
        *_describe(waited, recorded, displaced, clipped, shift),
        *_describe_lengths(waited, waits, zeros),
    )
    return _replace_times(record_faults(waited, found), times), found


def _cut_overruns(trace: RankTrace) -> tuple[RankTrace, tuple[Message, ...]]:
    """Cut the ops that outlast what is around them, then the calls that outlast these or what follows them."""
    nested, ops = cut_overrunning_ops(trace)
    cut, calls = cut_overrunning_calls(nested)
    found = ((messages.OPS_OVERRUN, trace.ops, ops), (messages.CALLS_OVERRUN, trace.calls, calls))
    return cut, tuple(_describe_overrun(trace, template, table[rows]) for template, table, rows in found if rows.size)


def _describe_overrun(trace: RankTrace, template: Template, overrun: pl.DataFrame) -> Message:
    name, start_ns, length_ns = overrun.sort("dur_ns").select("name", "ts_ns", "dur_ns").row(-1)
    at_us = _locate(trace, start_ns)
    return template(count=overrun.height, name=name, longest_us=length_ns / 1e3, at_us=at_us)


def _correct_single(times: ActivityTimes, returns: BlockingReturns) -> tuple[ActivityTimes, Bools, Bools]:
    """Correct the activities that break the bounds of calls although the clocks agree.

    Returns:
        The times; which activities were placed anew, as they start before their launch or after a call that waited for
            them had returned; and which were cut at the return of such a call.
    """
    latest, tolerance = returns.latest_ns, max(TOLERANCE_NS, returns.clock_error_ns)
    too_early = times.has_launch & (times.start_ns < times.launched_ns - TOLERANCE_NS)
    moved = too_early | (times.start_ns > latest + tolerance)
    placed = place_displaced(times, moved) if moved.any() else times
    cut = (placed.end_ns > latest + tolerance) & (placed.start_ns < latest)
    return placed.move(placed.start_ns, np.where(cut, latest, placed.end_ns)), moved, cut


def _replace_times(trace: RankTrace, times: ActivityTimes) -> RankTrace:
    """Return the trace with other times of its activities, which stay ordered by start."""
    order = np.argsort(times.start_ns, kind="stable")
    columns = {"ts_ns": pl.Series(times.start_ns), "dur_ns": pl.Series(times.end_ns - times.start_ns)}
    activities = trace.activities.with_columns(**columns)[order]
    captured = trace.captured and replace(trace.captured, call_row=trace.captured.call_row[order])
    return replace(trace, activities=activities, captured=captured)


def record_faults(trace: RankTrace, found: Sequence[Message]) -> RankTrace:
    """Enter what was corrected into the trace's ledger."""
    if not found:
        return trace
    ledger = trace.ledger
    for message in found:
        if message.template is messages.TIMES_OUTSIDE:
            continue
        table = TABLES.get(message.template, "activities")
        count = int(str(message.values.get("count", trace.tables[table].height)))
        ledger = add_change(ledger, message.template, table, count)
    return replace(trace, ledger=ledger)


def _describe_lengths(trace: RankTrace, waits: Ints, zeros: Bools) -> Iterator[Message]:
    if waits.size:
        row = int(waits[0])
        yield messages.WAITS_TOO_SHORT(
            count=int(waits.size), name=trace.calls["name"][row], at_us=_locate(trace, trace.calls["ts_ns"][row])
        )
    if zeros.any():
        row = int(np.flatnonzero(zeros)[0])
        yield messages.DURATIONS_ZERO(
            count=int(zeros.sum()),
            name=trace.activities["name"][row],
            at_us=_locate(trace, trace.activities["ts_ns"][row]),
        )


def _locate(trace: RankTrace, at_ns: int) -> float:
    """Return the time since the first event of the trace, as viewers show it."""
    first = min(int(np.min(table["ts_ns"].to_numpy())) for table in trace.tables.values() if table.height)
    return (at_ns - first) / 1e3


def _describe(
    trace: RankTrace, recorded: ActivityTimes, displaced: Bools, clipped: Bools, shift: ClockShift | None
) -> Iterator[Message]:
    names = trace.activities["name"]
    if displaced.any():
        row = int(np.flatnonzero(displaced)[0])
        off_us = abs(int(recorded.start_ns[row] - recorded.launched_ns[row])) / 1e3
        at_us = _locate(trace, int(recorded.launched_ns[row]))
        yield messages.TIMES_DISPLACED(count=int(displaced.sum()), name=names[row], off_us=off_us, at_us=at_us)
    if clipped.any():
        length = np.where(clipped, recorded.end_ns - recorded.start_ns, 0)
        row = int(length.argmax())
        at_us = _locate(trace, int(recorded.start_ns[row]))
        yield messages.TIMES_OVERRUN(
            count=int(clipped.sum()), name=names[row], longest_us=float(length[row]) / 1e3, at_us=at_us
        )
    if shift and shift.drift:
        span_ns = int(recorded.end_ns.max() - recorded.start_ns.min())
        first_us, last_us = (float(shift.offset_ns + shift.drift * at) / 1e3 for at in (0, span_ns))
        yield messages.CLOCK_DRIFT(first_us=first_us, last_us=last_us)
    elif shift:
        yield messages.CLOCK_OFFSET(late_us=shift.offset_ns / 1e3)


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
