"""Ops and calls that outlast what is around them, or what follows them, on their own thread.

A thread is in one place at a time, so what it does nests: all public traces hold this within 4 us.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.blocking_calls import BLOCKING_CALLS
from tracekit.timing.arrays import NEVER_NS, TOLERANCE_NS, compute_least_of_later
from tracekit.trace import RankTrace
from tracekit.workload.owners import find_innermost_ops, find_launching_calls, number_threads


def cut_overrunning_ops(trace: RankTrace) -> tuple[RankTrace, Ints]:
    """Cut ops that outlast the op or annotation around their start.

    Returns:
        The trace, and the rows of the ops that were cut.
    """
    ops = trace.ops
    around = pl.concat([table.select("pid", "tid", "ts_ns", "dur_ns") for table in (ops, trace.annotations)])
    # Just before its start an op isn't around itself, nor is the one before it if that ends at its start.
    just_before = ops.select("pid", "tid", ts_ns=pl.col("ts_ns") - 1, dur_ns=pl.lit(1, pl.Int64))
    open_longer = around.with_columns(dur_ns=(pl.col("dur_ns") - 1).clip(0))
    latest = _find_ends_of_owners(just_before, open_longer) + 1
    start, length = ops["ts_ns"].to_numpy(), ops["dur_ns"].to_numpy()
    rows = np.flatnonzero(start + length > latest + TOLERANCE_NS)
    return replace(trace, ops=_set_lengths(ops, rows, latest - start)), rows


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
    thread, op_thread = number_threads(calls, ops)
    op_start = ops["ts_ns"].to_numpy()
    latest = np.minimum(_find_ends_of_owners(calls, ops), _find_next(thread, start, op_thread, op_start))
    launching = find_launching_calls(trace.activities, calls).drop_nulls().unique().to_numpy().astype(np.int64)
    is_wait = calls["name"].str.contains(BLOCKING_CALLS).to_numpy().astype(np.bool_)
    is_wait[launching] = False
    following_launch = _find_next(thread, start, thread[launching], start[launching])
    latest = np.where(is_wait, np.minimum(latest, following_launch), latest)
    rows = np.flatnonzero(start + length > latest + TOLERANCE_NS)
    return replace(trace, calls=_set_lengths(calls, rows, latest - start)), rows


def _set_lengths(table: pl.DataFrame, rows: Ints, lengths: Ints) -> pl.DataFrame:
    """Return a table with other durations in some rows."""
    if not rows.size:
        return table
    changed = table["dur_ns"].to_numpy().copy()
    changed[rows] = lengths[rows]
    return table.with_columns(dur_ns=pl.Series(changed))


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
