"""Find the innermost op around each call, what the calls launched, and launches whose kernels were lost."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from tracekit.arrays import Ints, fill_nulls, find_nulls, make_column, make_nulls, number_pairs, select_table
from tracekit.compiled import compile_lazily
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.messages.traces import FORMAT_LACKS
from tracekit.trace import RankTrace


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


@dataclass(frozen=True, slots=True)
class LaunchedWork:
    """What the calls of a trace launched, in order.

    Attributes:
        at_ns: When each call with GPU work began.
        work_ns: GPU time that it and all before it launched.
    """

    at_ns: Ints
    work_ns: Ints

    @classmethod
    def from_trace(cls, trace: RankTrace) -> Self:
        """Sum the activities of each call; those without one have no place on the host."""
        row = trace.launches.row
        at_ns = trace.calls["ts_ns"].to_numpy()[row[row >= 0]]
        order = np.argsort(at_ns, kind="stable")
        return cls(at_ns[order], np.cumsum(trace.activities["dur_ns"].to_numpy()[row >= 0][order]))

    @property
    def total_ns(self) -> int:
        """All of it."""
        return int(self.work_ns[-1]) if self.work_ns.size else 0

    def measure(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """Measure what was launched from each start until before each end."""
        before = np.concatenate([[0], self.work_ns])
        found: Ints = before[np.searchsorted(self.at_ns, end_ns)] - before[np.searchsorted(self.at_ns, start_ns)]
        return found


# Calls that launch a kernel, to find launches without one. Launches and kernels are otherwise linked by correlation ID.
KERNEL_LAUNCH_PATTERN = r"^((cuda|cu|hip)\w*Launch\w*Kernel|(cuda|cu|hip)GraphLaunch)"
NSIGHT_TOOL = "Nsight Systems"
CAPTURE_CALL_PATTERN = r"StreamBeginCapture|StreamEndCapture"


def count_lost_launches(rank: RankTrace) -> tuple[int, int]:
    """Return the number of launches without a kernel in the trace, and the number of all launches.

    Launches into a graph that is being captured start no kernel and don't count.
    """
    launching = _find_launches(rank)
    ran = launching["correlation"].is_in(rank.activities["correlation"].implode())
    return int((~ran).sum()), launching.height


def lacks_graphs(rank: RankTrace) -> bool:
    """Return whether Nsight Systems recorded nothing of what CUDA graphs ran, and lost no other kernels."""
    tool = next((one.values["tool"] for one in rank.warnings if one.template is FORMAT_LACKS), None)
    if tool != NSIGHT_TOOL:
        return False
    launching = _find_launches(rank).with_columns(of_graph=pl.col("name").str.contains(GRAPH_LAUNCH_CALLS))
    lost = launching.join(rank.activities, on="correlation", how="anti")
    return lost.height > 0 and bool(lost["of_graph"].all()) and lost.height == launching["of_graph"].sum()


def _find_launches(rank: RankTrace) -> pl.DataFrame:
    launches = rank.calls[rank.find_named("calls", KERNEL_LAUNCH_PATTERN)]
    launches = select_table(launches, ~find_nulls(launches["correlation"]))
    capture = rank.calls[rank.find_named("calls", CAPTURE_CALL_PATTERN)]
    if capture.is_empty():
        return launches
    begins = capture.select("ts_ns", capturing=pl.col("name").str.contains("Begin"))
    found = launches.join_asof(begins, on="ts_ns", check_sortedness=False)
    return found.filter(~pl.col("capturing").fill_null(False))
