"""Find what launched each activity: its call by correlation id, and the call's innermost op by nesting."""

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.compiled import compile_lazily


def find_launching_calls(activities: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """Find the row in ``calls`` that launched each activity; null if it isn't in the trace.

    Joins on the correlation id. Flow events are not used: libkineto also draws them for calls that launch nothing.
    """
    rows = calls.with_row_index("call").drop_nulls("correlation").unique("correlation", keep="first")
    joined = activities.join(
        rows.select("correlation", pl.col("call").cast(pl.Int64)),
        on="correlation",
        how="left",
        maintain_order="left",
    )
    return joined["call"]


def find_innermost_ops(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Find the row in ``ops`` of the innermost op around the start of each call on its thread; null if there is none.

    A call of nonzero duration that starts exactly when an op ends comes after that op and belongs to the enclosing op.
    """
    op_threads, call_threads = number_threads(ops, calls)
    op_start, op_end = ops["ts_ns"].to_numpy(), (ops["ts_ns"] + ops["dur_ns"]).to_numpy()
    call_start = calls["ts_ns"].to_numpy()
    call_within = call_start + (calls["dur_ns"] > 0).to_numpy()
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
    return pl.Series("op_row", owners).replace(-1, None)


def gather_rows(values: pl.Series, rows: pl.Series) -> pl.Series:
    """Gather ``values`` at ``rows``; null where the row is null."""
    if values.is_empty():
        return pl.Series(values.name, [None] * len(rows), dtype=values.dtype)
    return values.gather(rows)


def number_threads(*tables: pl.DataFrame) -> list[Ints]:
    """Number each (pid, tid) densely over all tables."""
    threads = pl.concat([table.select("pid", "tid") for table in tables])
    numbers = threads.select(pl.struct("pid", "tid").rank("dense").cast(pl.Int64)).to_series().to_numpy()
    return np.split(numbers, np.cumsum([table.height for table in tables])[:-1])


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
