"""Durations that can't be: activities that last 0, and waits that return before what they waited for has ended."""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints, number_pairs
from tracekit.timing.arrays import (
    NEVER_NS,
    TOLERANCE_NS,
    ActivityTimes,
    BlockingReturns,
    compute_least_of_later,
    find_blocking_calls,
)
from tracekit.trace import RankTrace

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
    return _replace_call_lengths(trace, lengths), rows


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


def _replace_call_lengths(trace: RankTrace, lengths: Ints) -> RankTrace:
    return replace(trace, calls=trace.calls.with_columns(dur_ns=pl.Series(lengths)))
