"""Times of single events that can't be, and what they are corrected to.

Ops and calls that outlast what is around them, or what follows them, on their own thread; waits that return before
what they waited for has ended; activities that last 0, lie far from their place on the stream, or run over the next. A
thread is in one place at a time, so what it does nests: all public traces hold this within 4 us.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints, compute_least_from, list_used_rows, number_pairs
from tracekit.graph.nodes import BLOCKING_CALLS
from tracekit.timing.arrays import (
    NEVER_NS,
    TOLERANCE_NS,
    ActivityTimes,
    BlockingReturns,
    compute_least_of_later,
    find_blocking_calls,
)
from tracekit.trace import RankTrace
from tracekit.workload.owners import find_innermost_spans


def cut_overrunning_ops(trace: RankTrace) -> tuple[RankTrace, Ints]:
    """Cut ops that outlast the op or annotation around their start.

    Returns:
        The trace, and the rows of the ops that were cut.
    """
    tables = (trace.ops, trace.annotations)
    thread = number_pairs(tables, "pid", "tid")
    starts, lengths = ([table[name].to_numpy() for table in tables] for name in ("ts_ns", "dur_ns"))
    start, length = starts[0], lengths[0]
    # Just before its start an op isn't around itself, nor is the one before it if that ends at its start.
    around = np.concatenate(starts)
    spans = np.concatenate(thread), around, around + np.maximum(np.concatenate(lengths) - 1, 0)
    latest = _find_ends_of_owners(spans, (thread[0], start - 1, start)) + 1
    rows = np.flatnonzero(start + length > latest + TOLERANCE_NS)
    return (replace(trace, ops=_set_lengths(trace.ops, rows, latest - start)) if rows.size else trace), rows


def cut_overrunning_calls(trace: RankTrace) -> tuple[RankTrace, Ints]:
    """Cut calls that outlast the op around them, or the start of what their thread did next.

    ::

        op      |------ aten::item ------|        |--- aten::add ---|
        call         |== synchronize ==========================================|
        cut          |== synchronize ====|

    Ops bound all calls, since no call runs an op. Calls that launch work bound the waits; other calls may lie within
    one another, as the driver's do within the runtime's.

    Returns:
        The trace, and the rows of the calls that were cut.
    """
    calls, ops = trace.calls, trace.ops
    start, length = calls["ts_ns"].to_numpy(), calls["dur_ns"].to_numpy()
    thread, op_thread = number_pairs((calls, ops), "pid", "tid")
    op_start = ops["ts_ns"].to_numpy()
    spans = op_thread, op_start, op_start + ops["dur_ns"].to_numpy()
    owned_until = _find_ends_of_owners(spans, (thread, start, start + (length > 0)))
    latest = np.minimum(owned_until, _find_next(thread, start, op_thread, op_start))
    launching = list_used_rows(trace.launches.row)
    is_wait = trace.call_names.match(BLOCKING_CALLS)
    is_wait[launching] = False
    following_launch = _find_next(thread, start, thread[launching], start[launching])
    latest = np.where(is_wait, np.minimum(latest, following_launch), latest)
    rows = np.flatnonzero(start + length > latest + TOLERANCE_NS)
    return (replace(trace, calls=_set_lengths(calls, rows, latest - start)) if rows.size else trace), rows


def _set_lengths(table: pl.DataFrame, rows: Ints, lengths: Ints) -> pl.DataFrame:
    """Return a table with other durations in some rows."""
    changed = table["dur_ns"].to_numpy().copy()
    changed[rows] = lengths[rows]
    return table.with_columns(dur_ns=pl.Series(changed))


def _find_ends_of_owners(spans: tuple[Ints, Ints, Ints], times: tuple[Ints, Ints, Ints]) -> Ints:
    """Find the end of the innermost span around each time (see ``find_innermost_spans``); ``NEVER_NS`` without one."""
    ends: Ints = np.append(spans[2], NEVER_NS)[find_innermost_spans(spans, times)]
    return ends


def _find_next(thread: Ints, time: Ints, bound_thread: Ints, bound: Ints) -> Ints:
    """Find the first of ``bound`` after each time on the same thread; ``NEVER_NS`` after the last."""
    threads, times = np.concatenate([thread, bound_thread]), np.concatenate([time, bound])
    is_bound = np.arange(times.size) >= time.size
    # Bounds at the very time come first, and so don't count.
    order = np.lexsort((~is_bound, times, threads))
    found: Ints = np.empty(times.size, np.int64)
    found[order] = compute_least_of_later(np.where(is_bound, times, NEVER_NS)[order], threads[order])
    return found[: time.size]


RETURN_AFTER_NS = 5_000
"""A wait returns so long after the activity has ended (least of 34 public traces)."""
MIN_WAITED_FOR = 2
"""One activity that outlasts a wait has a wrong time itself; of several the wait has."""


def lengthen_zeros(trace: RankTrace, times: ActivityTimes, returns: BlockingReturns) -> tuple[ActivityTimes, Bools]:
    """Lengthen activities that last 0 to the median of their like, if that is too long to be rounded away.

    They end when the next one on their stream begins, or a call that waited for them has returned, at the latest.

    Returns:
        The times, and which activities were lengthened.
    """
    zero = times.end_ns == times.start_ns
    if zero.any():
        like = ("kind", "name", "blocks", "bytes")
        lasting = pl.when(pl.col("dur_ns") > 0).then("dur_ns").median().over(like)
        usual = trace.activities.select(lasting).to_series().fill_null(0).to_numpy().astype(np.int64)
        zero &= usual > TOLERANCE_NS
    if not zero.any():
        return times, zero
    order = np.lexsort((times.start_ns, times.stream))
    following = np.full(times.start_ns.size, NEVER_NS, np.int64)
    same = times.stream[order][1:] == times.stream[order][:-1]
    following[order[:-1][same]] = times.start_ns[order][1:][same]
    latest = np.maximum(np.minimum(following, returns.latest_ns), times.start_ns)
    return times.move(times.start_ns, np.where(zero, np.minimum(times.start_ns + usual, latest), times.end_ns)), zero


def lengthen_waits(trace: RankTrace, times: ActivityTimes) -> tuple[RankTrace, Ints]:
    """Lengthen waits that return before several activities have ended that they waited for.

    Only where the threads did nothing until these had ended: otherwise the activities' times, or the clock, are wrong.

    Returns:
        The trace, and the rows of the lengthened calls.
    """
    waits = find_blocking_calls(trace, times)
    if not waits.size:
        return trace, waits
    order = np.argsort(times.launched_ns, kind="stable")
    launched, ends = times.launched_ns[order], times.end_ns[order]
    begun = trace.calls["ts_ns"].to_numpy()[waits]
    returned = begun + trace.calls["dur_ns"].to_numpy()[waits]
    is_known = launched > -NEVER_NS
    latest = np.maximum.accumulate(np.append(-NEVER_NS, np.where(is_known, ends, -NEVER_NS)))
    last = latest[np.searchsorted(launched, begun)]
    wait = np.searchsorted(begun, launched, side="right")
    outlasts = is_known & (wait < begun.size)
    outlasts[outlasts] = ends[outlasts] > returned[wait[outlasts]] + TOLERANCE_NS
    late = np.bincount(wait[outlasts], minlength=begun.size)
    is_late, is_free = late >= MIN_WAITED_FOR, _find_next_on_thread(trace, waits) >= last
    is_clock = 2 * is_late.sum() > is_late.size and (returned - begun)[is_late].max(initial=0) > TOLERANCE_NS
    if not is_late.any() or is_clock or (is_late & ~is_free).any():
        return trace, np.empty(0, np.int64)
    rows = waits[is_late]
    lengths = trace.calls["dur_ns"].to_numpy().copy()
    lengths[rows] = last[is_late] + RETURN_AFTER_NS - begun[is_late]
    return replace(trace, calls=trace.calls.with_columns(dur_ns=pl.Series(lengths))), rows


def _find_next_on_thread(trace: RankTrace, waits: Ints) -> Ints:
    """Find the start of the next call or op on the thread of each wait; ``NEVER_NS`` after the last."""
    tables = (trace.calls, trace.ops)
    thread = number_pairs(tables, "pid", "tid")
    starts = [table["ts_ns"].to_numpy() for table in tables]
    number = np.concatenate([*thread, thread[0][waits]])
    start = np.concatenate([*starts, starts[0][waits]])
    is_wait = np.arange(start.size) >= start.size - waits.size
    order = np.lexsort((is_wait, start, number))
    event = np.where(is_wait[order], NEVER_NS, start[order])
    found: Ints = np.empty(start.size, np.int64)
    found[order] = compute_least_of_later(event, number[order])
    return found[is_wait]


MIN_DISPLACED_NS = 1_000_000
"""An activity out of its stream's order by less may have been launched by several threads at once."""
MIN_IMPOSSIBLE_NS = 1_000_000_000
"""An activity earlier than its launch by more is displaced: clocks of one machine agree better."""
LAUNCH_LATENCY_NS = 8_000


def find_displaced(times: ActivityTimes, returns: BlockingReturns) -> Bools:
    """Find the activities that lie far from their place among those launched before and after on their stream.

    One that lies in the past starts before an earlier-launched one; one that lies in the future, after a later-launched
    one. Of those that contradict each other the fewer are displaced, or those that a call waited for in vain::

        launched    1   2   3   4
        started     1       3   4            2 (27 hours before): 2 is displaced, not 1
    """
    displaced = times.has_launch & (times.start_ns < times.launched_ns - MIN_IMPOSSIBLE_NS)
    if 2 * displaced.sum() > times.has_launch.sum():  # a clock, not single activities
        displaced[:] = False
    for rows in _list_streams(times, times.has_launch & ~displaced):
        start = times.start_ns[rows]
        earlier = np.concatenate([[-NEVER_NS], np.maximum.accumulate(start)[:-1]])
        later = np.concatenate([compute_least_from(start)[1:], [NEVER_NS]])
        in_past, in_future = start < earlier - MIN_DISPLACED_NS, start > later + MIN_DISPLACED_NS
        in_vain = (start > returns.latest_ns[rows] + MIN_DISPLACED_NS) & in_future
        fewer_in_past = in_past.sum() < in_future.sum() + (not in_vain.any())
        displaced[rows] = in_past if fewer_in_past else in_future
    return displaced


def place_displaced(times: ActivityTimes, displaced: Bools) -> ActivityTimes:
    """Place displaced activities after those launched before them and after their own launch.

    Several in a row follow one another, and end before the next one that isn't displaced if they can::

        stream   |== previous ==|[displaced 1][displaced 2]     |== following ==|
    """
    start = times.start_ns.copy()
    for rows in _list_streams(times, times.has_launch):
        moved = displaced[rows]
        if not moved.any():
            continue
        length = np.where(moved, (times.end_ns - times.start_ns)[rows], 0)
        previous = np.maximum.accumulate(np.where(moved, -NEVER_NS, times.end_ns[rows]))
        before = np.cumsum(length) - length
        since = before - np.maximum.accumulate(np.where(moved, 0, before))
        free = np.where(moved, times.launched_ns[rows] + LAUNCH_LATENCY_NS, times.end_ns[rows])
        earliest = before + np.maximum.accumulate(free - before)
        following = compute_least_from(np.where(moved, NEVER_NS, times.start_ns[rows]))
        to_run_end = compute_least_from(np.where(moved, NEVER_NS, before)) - before
        latest = np.where(following == NEVER_NS, earliest, following - to_run_end)
        fits = np.clip(latest, previous + since, earliest)
        start[rows[moved]] = fits[moved]
    return times.move(start, start + times.end_ns - times.start_ns)


def clip_overruns(times: ActivityTimes) -> tuple[ActivityTimes, Bools]:
    """End activities where the next one on their stream starts, if they run on too long.

    Where the next one may be a programmatic dependent launch, which starts before the previous one ends, an activity
    runs on too long only if it ends after the next one has ended.

    Returns:
        The times, and which activities were clipped.
    """
    end, clipped = times.end_ns.copy(), np.zeros(times.end_ns.size, dtype=np.bool_)
    for rows in _list_streams(times, np.ones_like(times.is_graph), by_start=True):
        this, following = rows[:-1], rows[1:]
        latest = np.where(times.may_begin_early[following], end[following], times.start_ns[following])
        over = (end[this] > latest + TOLERANCE_NS) & (times.start_ns[following] > times.start_ns[this])
        over &= ~(times.is_graph[this] & times.is_graph[following])
        end[this[over]] = times.start_ns[following[over]]
        clipped[this[over]] = True
    return times.move(times.start_ns, end), clipped


def _list_streams(times: ActivityTimes, chosen: Bools, *, by_start: bool = False) -> list[Ints]:
    """List the chosen rows of each stream in the order in which they were launched, or started."""
    order = np.lexsort((times.start_ns if by_start else times.launched_ns, times.stream))
    order = order[chosen[order]]
    cuts = np.flatnonzero(np.diff(times.stream[order])) + 1
    return [rows for rows in np.split(order, cuts) if rows.size]
