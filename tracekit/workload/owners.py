"""Find what launched each activity: its call by correlation id, and the call's innermost op by nesting."""

import numpy as np
import polars as pl

from tracekit.arrays import Ints, fill_nulls, make_column, make_nulls
from tracekit.compiled import compile_lazily

NO_NUMBER = np.iinfo(np.int64).min
"""Stands for a process or thread that wasn't recorded."""
MAX_NUMBER = 1 << 31
"""Numbers of processes and of threads below it make one number of 62 bits together."""


def find_launching_calls(activities: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """Find the row in ``calls`` that launched each activity; null if it isn't in the trace.

    Joins on the correlation id. Flow events are not used: libkineto also draws them for calls that launch nothing.
    """
    noted = calls.select("correlation", row=pl.int_range(pl.len())).drop_nulls("correlation")
    if noted.is_empty():
        return make_nulls("call", activities.height)
    ids, wanted = noted["correlation"].to_numpy(), fill_nulls(activities["correlation"], NO_NUMBER)
    order = np.argsort(ids, kind="stable")
    first = order[np.searchsorted(ids, wanted, sorter=order).clip(max=ids.size - 1)]
    return make_column("call", np.where(ids[first] == wanted, noted["row"].to_numpy()[first], -1), -1)


def find_innermost_ops(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Find the row in ``ops`` of the innermost op around the start of each call on its thread; null if there is none.

    A call of nonzero duration that starts exactly when an op ends comes after that op and belongs to the enclosing op.
    Without a start, a call lies in no op, and an op around no call.
    """
    if calls["ts_ns"].null_count() or ops["ts_ns"].null_count():
        return _find_innermost_of_timed(calls, ops)
    if ops.is_empty() or calls.is_empty():
        return make_nulls("op_row", calls.height)
    op_threads, call_threads = number_threads(ops, calls)
    op_start, call_start = ops["ts_ns"].to_numpy(), calls["ts_ns"].to_numpy()
    op_end = op_start + fill_nulls(ops["dur_ns"], 0)
    call_within = call_start + (fill_nulls(calls["dur_ns"], 0) > 0)
    op_order = np.lexsort((-op_end, op_start, op_threads))
    call_order = np.lexsort((call_start, call_threads))
    found = _find_innermost(
        op_threads[op_order],
        op_start[op_order],
        op_end[op_order],
        call_threads[call_order],
        call_start[call_order],
        call_within[call_order],
    )
    owners = np.full(calls.height, -1, dtype=np.int64)
    owners[call_order[found >= 0]] = op_order[found[found >= 0]]
    return make_column("op_row", owners, -1)


def _find_innermost_of_timed(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Find the same where starts are missing: numpy would turn them, and all others, into floating-point numbers."""
    timed, around = (table["ts_ns"].is_not_null().to_numpy() for table in (calls, ops))
    found = find_innermost_ops(calls.filter(timed), ops.filter(around))
    owners = np.full(calls.height, -1, dtype=np.int64)
    owners[np.flatnonzero(timed)[found.is_not_null().to_numpy()]] = np.flatnonzero(around)[found.drop_nulls()]
    return make_column("op_row", owners, -1)


def number_threads(*tables: pl.DataFrame) -> list[Ints]:
    """Number each (pid, tid) over all tables, in their order."""
    pid, tid = (
        _number_values(np.concatenate([fill_nulls(table[name], NO_NUMBER) for table in tables]))
        for name in ("pid", "tid")
    )
    return np.split(pid * (tid.max(initial=0) + 1) + tid, np.cumsum([table.height for table in tables])[:-1])


def _number_values(values: Ints) -> Ints:
    """Number integers from 0 in their order; those near each other need no sorting."""
    if not values.size:
        return values
    least = int(values.min())
    if int(values.max()) - least < MAX_NUMBER:
        return values - least
    numbers: Ints = np.unique(values, return_inverse=True)[1]
    return numbers


def _find_innermost(
    op_thread: Ints, op_start: Ints, op_end: Ints, query_thread: Ints, query_time: Ints, query_within: Ints
) -> Ints:
    """Find the innermost op that is open from each query until ``query_within``; all ordered by thread and time."""
    result, stack = np.full(query_time.size, -1, dtype=np.int64), np.empty(op_start.size, dtype=np.int64)
    ops, queries = (op_thread, op_start, op_end), (query_thread, query_time, query_within)
    _find_innermost_open(op_start.size, *ops, query_time.size, *queries, stack, result)
    return result


@compile_lazily
def _find_innermost_open(
    ops: int,
    op_thread: Ints,
    op_start: Ints,
    op_end: Ints,
    queries: int,
    query_thread: Ints,
    query_time: Ints,
    query_within: Ints,
    stack: Ints,
    result: Ints,
) -> int:  # pragma: no cover - compiled
    depth = 0
    op = 0
    for query in range(queries):
        thread, time = query_thread[query], query_time[query]
        while op < ops and (op_thread[op] < thread or (op_thread[op] == thread and op_start[op] <= time)):
            while depth > 0 and (
                op_thread[stack[depth - 1]] != op_thread[op] or op_end[stack[depth - 1]] <= op_start[op]
            ):
                depth -= 1
            stack[depth] = op
            depth += 1
            op += 1
        while depth > 0 and (op_thread[stack[depth - 1]] != thread or op_end[stack[depth - 1]] < query_within[query]):
            depth -= 1
        if depth > 0:
            result[query] = stack[depth - 1]
    return 0
