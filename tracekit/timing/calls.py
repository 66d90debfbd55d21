"""Calls that outlast what follows them on their own thread."""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.blocking_calls import BLOCKING_CALLS
from tracekit.timing.arrays import NEVER_NS, TOLERANCE_NS, compute_least_of_later
from tracekit.trace import RankTrace
from tracekit.workload.owners import find_innermost_ops, find_launching_calls, number_threads


def cut_overrunning_calls(trace: RankTrace) -> tuple[RankTrace, Ints]:
    """Cut calls that outlast the op around them, or the start of what their thread did next.

    A thread is in one place at a time::

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
    thread, op_thread = number_threads(calls, ops)
    op_start = ops["ts_ns"].to_numpy()
    latest = np.minimum(_find_ends_of_owners(calls, ops), _find_next(thread, start, op_thread, op_start))
    launching = find_launching_calls(trace.activities, calls).drop_nulls().unique().to_numpy().astype(np.int64)
    is_wait = calls["name"].str.contains(BLOCKING_CALLS).to_numpy().astype(np.bool_)
    is_wait[launching] = False
    following_launch = _find_next(thread, start, thread[launching], start[launching])
    latest = np.where(is_wait, np.minimum(latest, following_launch), latest)
    rows = np.flatnonzero(start + length > latest + TOLERANCE_NS)
    if not rows.size:
        return trace, rows
    lengths = length.copy()
    lengths[rows] = (latest - start)[rows]
    return replace(trace, calls=calls.with_columns(dur_ns=pl.Series(lengths))), rows


def _find_ends_of_owners(calls: pl.DataFrame, ops: pl.DataFrame) -> Ints:
    """Find the end of the innermost op around each call's start; ``NEVER_NS`` without one."""
    if ops.is_empty():
        return np.full(calls.height, NEVER_NS)
    ends = (ops["ts_ns"] + ops["dur_ns"]).gather(find_innermost_ops(calls, ops))
    return ends.fill_null(NEVER_NS).to_numpy()


def _find_next(thread: Ints, time: Ints, bound_thread: Ints, bound: Ints) -> Ints:
    """Find the first of ``bound`` after each time on the same thread; ``NEVER_NS`` after the last."""
    threads, times = np.concatenate([thread, bound_thread]), np.concatenate([time, bound])
    is_bound = np.arange(times.size) >= time.size
    # Bounds at the very time come first, and so don't count.
    order = np.lexsort((~is_bound, times, threads))
    found: Ints = np.empty(times.size, np.int64)
    found[order] = compute_least_of_later(np.where(is_bound, times, NEVER_NS)[order], threads[order])
    return found[: time.size]
