"""Find the innermost op around each call, by nesting."""

import numpy as np
import polars as pl

from tracekit.arrays import Ints, fill_nulls, make_column, make_nulls, number_pairs
from tracekit.compiled import compile_lazily


def find_innermost_ops(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Find the row in ``ops`` of the innermost op around the start of each call on its thread; null if there is none.

    A call of nonzero duration that starts exactly when an op ends comes after that op and belongs to the enclosing op.
    Without a start, a call lies in no op, and an op around no call.
    """
    if calls["ts_ns"].null_count() or ops["ts_ns"].null_count():
        return _find_innermost_of_timed(calls, ops)
    if ops.is_empty() or calls.is_empty():
        return make_nulls("op_row", calls.height)
    op_threads, call_threads = number_pairs((ops, calls), "pid", "tid")
    op_start, call_start = ops["ts_ns"].to_numpy(), calls["ts_ns"].to_numpy()
    op_end = op_start + fill_nulls(ops["dur_ns"], 0)
    call_within = call_start + (fill_nulls(calls["dur_ns"], 0) > 0)
    owners = find_innermost_spans((op_threads, op_start, op_end), (call_threads, call_start, call_within))
    return make_column("op_row", owners, -1)


def _find_innermost_of_timed(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Find the same where starts are missing: numpy would turn them, and all others, into floating-point numbers."""
    timed, around = (table["ts_ns"].is_not_null().to_numpy() for table in (calls, ops))
    found = find_innermost_ops(calls.filter(timed), ops.filter(around))
    owners = np.full(calls.height, -1, dtype=np.int64)
    owners[np.flatnonzero(timed)[found.is_not_null().to_numpy()]] = np.flatnonzero(around)[found.drop_nulls()]
    return make_column("op_row", owners, -1)


def find_innermost_spans(spans: tuple[Ints, Ints, Ints], times: tuple[Ints, Ints, Ints]) -> Ints:
    """Find the row of the innermost span that is open at each time and until another; -1 without one.

    Args:
        spans: Thread, start and end of each span.
        times: Thread of each time, it, and until when the span has to be open.
    """
    thread, start, end = spans
    order, time_order = np.lexsort((-end, start, thread)), np.lexsort((times[1], times[0]))
    found, stack = np.full(time_order.size, -1, dtype=np.int64), np.empty(order.size, dtype=np.int64)
    ordered = thread[order], start[order], end[order]
    queries = times[0][time_order], times[1][time_order], times[2][time_order]
    _find_innermost_open(order.size, *ordered, time_order.size, *queries, stack, found)
    rows = np.full(time_order.size, -1, dtype=np.int64)
    rows[time_order[found >= 0]] = order[found[found >= 0]]
    return rows


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
