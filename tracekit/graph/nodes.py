"""What the graph is made of: calls that touch the GPU, marks on CPU threads, and GPU activities."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.calls import CAN_WAIT
from tracekit.ingest.captured import LAUNCHES_GRAPH
from tracekit.trace import RankTrace

NONE = -1
NO_NODES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Nodes:
    """CPU nodes first, then one node per activity; node ``i`` starts at vertex ``2 i`` and ends at ``2 i + 1``.

    Attributes:
        start_ns: Measured start, from the start of the trace.
        end_ns: Measured end.
        lane: CPU nodes: thread; activities: stream. Numbered over both together.
        cpu: How many CPU nodes there are.
        marks: How many of them, the last ones, are marks.
        launcher: Activities: the CPU node that launched it, ``NONE`` if the trace lacks it.
        names: Name of each CPU node.
        correlation: Correlation of each CPU node, ``NONE`` for marks.
        on_nvidia: Whether the calls are CUDA's.
        cover_lane: Lanes of the intervals in which a CPU thread is known to be busy.
        cover_start_ns: Their starts, ordered by lane and start.
        cover_end_ns: Their ends.
        origin_ns: The start of the trace, absolute.
    """

    start_ns: Ints
    end_ns: Ints
    lane: Ints
    cpu: int
    marks: int
    launcher: Ints
    names: pl.Series
    correlation: Ints
    on_nvidia: bool
    cover_lane: Ints
    cover_start_ns: Ints
    cover_end_ns: Ints
    origin_ns: int

    @property
    def dur_ns(self) -> Ints:
        """Measured durations."""
        return self.end_ns - self.start_ns

    @property
    def activities(self) -> Ints:
        """Node numbers of the activities, in the order of the kernel table."""
        return np.arange(self.cpu, self.start_ns.size)

    @property
    def launched_ns(self) -> Ints:
        """When the call that launched each activity began; 0 where the trace lacks it."""
        return np.where(self.launcher == NONE, 0, self.start_ns[self.launcher])

    @property
    def launches_graph(self) -> Bools:
        """Which CPU nodes launch a CUDA graph."""
        return self.names.str.contains(LAUNCHES_GRAPH).to_numpy()

    def measured_ns(self, vertices: Ints) -> Ints:
        """When the nodes of vertices started or ended (``tracekit.graph.edges``)."""
        return np.where(vertices % 2, self.end_ns[vertices // 2], self.start_ns[vertices // 2])

    def in_order(self, nodes: Ints) -> Ints:
        """``nodes`` ordered by lane and start."""
        return nodes[np.lexsort((nodes, -self.end_ns[nodes], self.start_ns[nodes], self.lane[nodes]))]

    def neighbours(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Consecutive pairs of ``nodes`` that share a lane, in order of start."""
        ordered = self.in_order(nodes)
        same = self.lane[ordered[1:]] == self.lane[ordered[:-1]]
        return ordered[:-1][same], ordered[1:][same]

    def first_from(self, lanes: Ints, times: Ints) -> Ints:
        """The first CPU node of each lane that starts at a time or later; ``NONE`` if there is none."""
        return self._search(self.start_ns[: self.cpu], lanes, times, step=0)

    def last_until(self, lanes: Ints, times: Ints) -> Ints:
        """The last CPU node of each lane that ends at a time or earlier; ``NONE`` if there is none."""
        return self._search(self.end_ns[: self.cpu], lanes, times + 1, step=-1)

    def _search(self, node_times: Ints, lanes: Ints, times: Ints, step: int) -> Ints:
        found = np.full(lanes.size, NONE)
        for lane in np.unique(lanes[lanes != NONE]).tolist():
            wanted = lanes == lane
            on_lane = np.flatnonzero(self.lane[: self.cpu] == lane)
            on_lane = on_lane[np.argsort(node_times[on_lane], kind="stable")]
            index = np.searchsorted(node_times[on_lane], times[wanted]) + step
            valid = (index >= 0) & (index < on_lane.size)
            found[wanted] = np.where(valid, on_lane[np.clip(index, 0, on_lane.size - 1)], NONE)
        return found


def collect(trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame) -> Nodes:
    """The nodes of a trace.

    Args:
        trace: The trace.
        kernels: Its kernel table (``schema.KERNELS``).
        marks: Moments on CPU threads that the replay should report: ``ts_ns``, ``pid``, ``tid``.
    """
    marks = marks.drop_nulls("pid")
    calls = _relevant_calls(trace, kernels)
    origin_ns = _origin(trace)
    cpu = pl.concat([calls, _marks(marks)], how="diagonal_relaxed")
    lanes = _Lanes(cpu, kernels)
    launcher = _launchers(calls, kernels)
    cover = _cover(trace, cpu, lanes, origin_ns)
    start = np.concatenate([cpu["ts_ns"].to_numpy(), kernels["ts_ns"].to_numpy()]) - origin_ns
    dur = np.concatenate([cpu["dur_ns"].to_numpy(), kernels["dur_ns"].to_numpy()])
    return Nodes(
        start_ns=start,
        end_ns=start + dur,
        lane=np.concatenate([lanes.of_threads(cpu), lanes.of_streams(kernels)]),
        cpu=cpu.height,
        marks=marks.height,
        launcher=launcher,
        names=cpu["name"],
        correlation=cpu["correlation"].fill_null(NONE).to_numpy(),
        on_nvidia=bool(calls["name"].str.starts_with("cu").any()),
        cover_lane=cover[0],
        cover_start_ns=cover[1],
        cover_end_ns=cover[2],
        origin_ns=origin_ns,
    )


def _relevant_calls(trace: RankTrace, kernels: pl.DataFrame) -> pl.DataFrame:
    launching = kernels["call"].drop_nulls().unique()
    rows = trace.calls.with_row_index("call").with_columns(pl.col("call").cast(pl.Int64))
    keep = pl.col("call").is_in(launching.implode()) | pl.col("name").str.contains(CAN_WAIT)
    return rows.filter(keep).select("ts_ns", "dur_ns", "name", "pid", "tid", "correlation", "call")


def _marks(marks: pl.DataFrame) -> pl.DataFrame:
    return marks.select("ts_ns", "pid", "tid", dur_ns=pl.lit(0, pl.Int64), name=pl.lit("mark"))


def _origin(trace: RankTrace) -> int:
    tables = (trace.ops, trace.calls, trace.annotations, trace.activities)
    return min(int(table["ts_ns"][0]) for table in tables if table.height)


def _launchers(calls: pl.DataFrame, kernels: pl.DataFrame) -> Ints:
    node_of_call = pl.DataFrame({"call": calls["call"], "node": np.arange(calls.height, dtype=np.int64)})
    joined = kernels.select("call").join(node_of_call, on="call", how="left", maintain_order="left")
    return joined["node"].fill_null(NONE).to_numpy()


class _Lanes:
    """Dense numbers for threads and, after them, streams."""

    def __init__(self, cpu: pl.DataFrame, kernels: pl.DataFrame) -> None:
        self._threads = cpu.select("pid", "tid").unique().sort("pid", "tid").with_row_index("lane")
        streams = kernels.select("device", "stream").unique().sort("device", "stream")
        self._streams = streams.with_row_index("lane", offset=self._threads.height)

    def of_threads(self, table: pl.DataFrame) -> Ints:
        """Lane of each row by its pid and tid; ``NONE`` on threads without nodes."""
        return self._join(table, self._threads, ["pid", "tid"])

    def of_streams(self, table: pl.DataFrame) -> Ints:
        """Lane of each row by its device and stream."""
        return self._join(table, self._streams, ["device", "stream"])

    @staticmethod
    def _join(table: pl.DataFrame, lanes: pl.DataFrame, on: list[str]) -> Ints:
        joined = table.select(on).join(lanes, on=on, how="left", nulls_equal=True, maintain_order="left")
        return joined["lane"].cast(pl.Int64).fill_null(NONE).to_numpy()


def _cover(trace: RankTrace, cpu: pl.DataFrame, lanes: _Lanes, origin_ns: int) -> tuple[Ints, Ints, Ints]:
    """When each thread is known to run ops or calls: disjoint intervals, ordered by lane and start."""
    spans = pl.concat([table.select("ts_ns", "dur_ns", "pid", "tid") for table in (trace.ops, trace.calls, cpu)])
    busy = spans.select(lane=lanes.of_threads(spans), start="ts_ns", end=pl.col("ts_ns") + pl.col("dur_ns")).filter(
        pl.col("lane") != NONE
    )
    ordered = busy.sort("lane", "start", "end")
    reached = pl.col("end").cum_max().shift(1).over("lane")
    islands = (
        ordered.with_columns(island=(reached.is_null() | (pl.col("start") > reached)).cum_sum())
        .group_by("island", maintain_order=True)
        .agg(pl.col("lane").first(), pl.col("start").first(), pl.col("end").max())
    )
    return (
        islands["lane"].to_numpy(),
        islands["start"].to_numpy() - origin_ns,
        islands["end"].to_numpy() - origin_ns,
    )
