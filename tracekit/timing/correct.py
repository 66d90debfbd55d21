"""Correct the times of a rank's GPU activities, and say what was corrected."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.ingest.ledger import add_change
from tracekit.messages import Message, Template
from tracekit.messages import traces as messages
from tracekit.timing.arrays import TOLERANCE_NS, ActivityTimes, BlockingReturns, find_blocking_returns
from tracekit.timing.calls import cut_overrunning_calls, cut_overrunning_ops
from tracekit.timing.clocks import ClockShift, estimate_shift
from tracekit.timing.durations import lengthen_waits, lengthen_zeros
from tracekit.timing.streams import clip_overruns, find_displaced, place_displaced
from tracekit.timing.window import drop_outside_window
from tracekit.trace import RankTrace

TABLES = {messages.WAITS_TOO_SHORT: "calls", messages.CALLS_OVERRUN: "calls", messages.OPS_OVERRUN: "ops"}
"""Which events have a fault; those of the others are activities."""


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
