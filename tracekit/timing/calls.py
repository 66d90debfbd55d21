"""Ops and calls that outlast what is around them, or what follows them, on their own thread.

A thread is in one place at a time, so what it does nests: all public traces hold this within 4 us.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints, number_pairs
from tracekit.graph.blocking_calls import BLOCKING_CALLS
from tracekit.timing.arrays import NEVER_NS, TOLERANCE_NS, compute_least_of_later
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
    launching = np.unique(trace.launches.row[trace.launches.row >= 0])
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
