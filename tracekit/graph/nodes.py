"""Recorded: the nodes of the graph, which are calls that touch the GPU, marks on CPU threads, and GPU activities."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints, compute_least_from
from tracekit.compiled import compile_lazily
from tracekit.graph.blocking_calls import BLOCKING_CALLS
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.trace import RankTrace

NONE = -1
EMPTY_NODES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Host nodes first, then one node per activity; node ``i`` starts at vertex ``2 i`` and ends at ``2 i + 1``.

    Attributes:
        start_ns: Measured start, from the start of the trace.
        end_ns: Measured end.
        lane: Thread of a host node, stream of an activity; threads are numbered first, then streams.
        n_host: Number of host nodes.
        n_marks: How many of the host nodes are marks; marks come last.
        launcher: For each activity the host node that launched it, ``NONE`` if the trace lacks it.
        names: Name of each host node.
        correlation: Correlation id of each host node, ``NONE`` for marks.
        is_nvidia: Whether the calls are CUDA's.
        busy_lane: Thread of each interval in which a thread is known to be busy.
        busy_start_ns: Starts of these intervals, ordered by lane and start.
        busy_end_ns: Ends of these intervals.
        origin_ns: Start of the trace, absolute.
    """

    start_ns: Ints
    end_ns: Ints
    lane: Ints
    n_host: int
    n_marks: int
    launcher: Ints
    names: pl.Series
    correlation: Ints
    is_nvidia: bool
    busy_lane: Ints
    busy_start_ns: Ints
    busy_end_ns: Ints
    origin_ns: int

    @property
    def dur_ns(self) -> Ints:
        """Measured durations."""
        return self.end_ns - self.start_ns

    @property
    def activities(self) -> Ints:
        """Node numbers of the activities, in the order of the kernel table."""
        return np.arange(self.n_host, self.start_ns.size)

    @property
    def launch_start_ns(self) -> Ints:
        """Start of each activity's launch call; 0 where the trace lacks it."""
        return np.where(self.launcher == NONE, 0, self.start_ns[self.launcher])

    @property
    def is_graph_launch(self) -> Bools:
        """Whether each host node launches a CUDA graph."""
        return self.names.str.contains(GRAPH_LAUNCH_CALLS).to_numpy()

    def get_vertex_times(self, vertices: Ints) -> Ints:
        """Return the measured times of vertices (numbered as in ``tracekit.graph.edges``)."""
        return np.where(vertices % 2, self.end_ns[vertices // 2], self.start_ns[vertices // 2])

    def sort_by_lane(self, nodes: Ints) -> Ints:
        """Return ``nodes`` sorted by lane and start."""
        return nodes[np.lexsort((nodes, -self.end_ns[nodes], self.start_ns[nodes], self.lane[nodes]))]

    def find_neighbours(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return consecutive pairs of ``nodes`` that share a lane, in order of start."""
        ordered = self.sort_by_lane(nodes)
        same = self.lane[ordered[1:]] == self.lane[ordered[:-1]]
        return ordered[:-1][same], ordered[1:][same]

    def find_calls(self, pattern: str) -> Ints:
        """Return the calls whose name matches a regular expression."""
        return np.flatnonzero(self.names.str.contains(pattern).to_numpy())

    def find_first_from(self, lanes: Ints, times: Ints) -> Ints:
        """Return the first host node of each lane that starts at a time or later; ``NONE`` without one."""
        return self._search(self.start_ns[: self.n_host], lanes, times, forward=True)

    def find_last_until(self, lanes: Ints, times: Ints) -> Ints:
        """Return the last host node of each lane that ends at a time or earlier; ``NONE`` without one."""
        return self._search(self.end_ns[: self.n_host], lanes, times, forward=False)

    def _search(self, node_times: Ints, lanes: Ints, times: Ints, *, forward: bool) -> Ints:
        """Find the nearest host node of each lane from each time on, or before it.

        Nodes and times are sorted together, lane by lane; the nearest node is the next one in this order.
        """
        lane = np.concatenate([self.lane[: self.n_host], lanes])
        is_time = np.arange(lane.size) >= self.n_host
        order = np.lexsort((is_time != forward, np.concatenate([node_times, times]), lane))
        place = np.where(is_time[order], order.size if forward else NONE, np.arange(order.size))
        nearest = compute_least_from(place) if forward else np.maximum.accumulate(place)
        node = order[np.clip(nearest, 0, order.size - 1)]
        valid = (nearest != NONE) & (nearest < order.size) & (lane[node] == lane[order])
        found = np.full(lane.size, NONE)
        found[order] = np.where(valid, node, NONE)
        return found[self.n_host :]


def collect_nodes(trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame) -> Nodes:
    """Collect the nodes of a trace.

    Args:
        trace: The trace.
        kernels: Its kernel table (``schema.KERNELS``).
        marks: Times on CPU threads that the replay should report: ``ts_ns``, ``pid``, ``tid``.
    """
    marks = marks.drop_nulls("pid")
    calls = _select_calls(trace, kernels)
    origin_ns = _find_origin(trace)
    cpu = pl.concat([calls, _build_marks(marks)], how="diagonal_relaxed")
    lanes = _LaneNumbers(cpu, kernels)
    launcher = _find_launchers(calls, kernels)
    cover = _find_busy_intervals(trace, cpu, lanes, origin_ns)
    start = np.concatenate([cpu["ts_ns"].to_numpy(), kernels["ts_ns"].to_numpy()]) - origin_ns
    dur = np.concatenate([cpu["dur_ns"].to_numpy(), kernels["dur_ns"].to_numpy()])
    return Nodes(
        start_ns=start,
        end_ns=start + dur,
        lane=np.concatenate([lanes.find_thread_lanes(cpu), lanes.find_stream_lanes(kernels)]),
        n_host=cpu.height,
        n_marks=marks.height,
        launcher=launcher,
        names=cpu["name"],
        correlation=cpu["correlation"].fill_null(NONE).to_numpy(),
        is_nvidia=bool(calls["name"].str.starts_with("cu").any()),
        busy_lane=cover[0],
        busy_start_ns=cover[1],
        busy_end_ns=cover[2],
        origin_ns=origin_ns,
    )


def _select_calls(trace: RankTrace, kernels: pl.DataFrame) -> pl.DataFrame:
    launching = kernels["call"].drop_nulls().unique()
    rows = trace.calls.with_row_index("call").with_columns(pl.col("call").cast(pl.Int64))
    keep = pl.col("call").is_in(launching.implode()) | pl.col("name").str.contains(BLOCKING_CALLS)
    return rows.filter(keep).select("ts_ns", "dur_ns", "name", "pid", "tid", "correlation", "call")


def _build_marks(marks: pl.DataFrame) -> pl.DataFrame:
    return marks.select("ts_ns", "pid", "tid", dur_ns=pl.lit(0, pl.Int64), name=pl.lit("mark"))


def _find_origin(trace: RankTrace) -> int:
    tables = (trace.ops, trace.calls, trace.annotations, trace.activities)
    return min(int(table["ts_ns"][0]) for table in tables if table.height)


def _find_launchers(calls: pl.DataFrame, kernels: pl.DataFrame) -> Ints:
    node_of_call = pl.DataFrame({"call": calls["call"], "node": np.arange(calls.height, dtype=np.int64)})
    joined = kernels.select("call").join(node_of_call, on="call", how="left", maintain_order="left")
    return joined["node"].fill_null(NONE).to_numpy()


class _LaneNumbers:
    """Consecutive numbers for threads and, after them, for streams."""

    def __init__(self, cpu: pl.DataFrame, kernels: pl.DataFrame) -> None:
        self._threads = cpu.select("pid", "tid").unique().sort("pid", "tid").with_row_index("lane")
        streams = kernels.select("device", "stream").unique().sort("device", "stream")
        self._streams = streams.with_row_index("lane", offset=self._threads.height)

    def find_thread_lanes(self, table: pl.DataFrame) -> Ints:
        """Return the lane of each row by its pid and tid; ``NONE`` for threads without nodes."""
        return self._join_lanes(table, self._threads, ["pid", "tid"])

    def find_stream_lanes(self, table: pl.DataFrame) -> Ints:
        """Return the lane of each row by its device and stream."""
        return self._join_lanes(table, self._streams, ["device", "stream"])

    @staticmethod
    def _join_lanes(table: pl.DataFrame, lanes: pl.DataFrame, on: list[str]) -> Ints:
        joined = table.select(on).join(lanes, on=on, how="left", nulls_equal=True, maintain_order="left")
        return joined["lane"].cast(pl.Int64).fill_null(NONE).to_numpy()


def _find_busy_intervals(
    trace: RankTrace, cpu: pl.DataFrame, lanes: _LaneNumbers, origin_ns: int
) -> tuple[Ints, Ints, Ints]:
    """Return when each thread is known to run ops or calls: disjoint intervals, ordered by lane and start."""
    spans = pl.concat([table.select("ts_ns", "dur_ns", "pid", "tid") for table in (trace.ops, trace.calls, cpu)])
    lane, start = lanes.find_thread_lanes(spans), spans["ts_ns"].to_numpy() - origin_ns
    order = np.lexsort((start, lane))[np.count_nonzero(lane == NONE) :]
    lane, start, end = lane[order], start[order], start[order] + spans["dur_ns"].to_numpy()[order]
    busy = np.empty((3, lane.size), np.int64)
    count = _merge_overlapping(lane.size, lane, start, end, *busy)
    return busy[0, :count], busy[1, :count], busy[2, :count]


@compile_lazily
def _merge_overlapping(
    spans: int, lane: Ints, start: Ints, end: Ints, busy_lane: Ints, busy_start: Ints, busy_end: Ints
) -> int:  # pragma: no cover - compiled
    last = -1
    for span in range(spans):
        if last >= 0 and busy_lane[last] == lane[span] and start[span] <= busy_end[last]:
            busy_end[last] = max(busy_end[last], end[span])
        else:
            last += 1
            busy_lane[last], busy_start[last], busy_end[last] = lane[span], start[span], end[span]
    return last + 1
