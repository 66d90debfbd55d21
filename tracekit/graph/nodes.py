"""Recorded: the nodes of the graph, which are calls that touch the GPU, marks on CPU threads, and GPU activities.

Names say which calls can block until the GPU has caught up, or manage memory. They are CUDA's, HIP's, and those of
Intel's Unified Runtime and Level Zero. Copies block too, but they launch an activity and are treated as launches.
Programs built for a default stream per thread use names that end in ``_ptsz`` (HIP: ``_spt``).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from tracekit.arrays import Bools, DistinctNames, Ints, compute_least_from, fill_nulls, number_pairs
from tracekit.compiled import compile_lazily
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.trace import RankTrace

DEVICE_WAIT_CALLS = r"^(cudaDeviceSynchronize|hipDeviceSynchronize|cuCtxSynchronize|zeContextSynchronize)$"
DEVICE_SYNC_CALLS = rf"{DEVICE_WAIT_CALLS}|^(cudaFree|hipFree)$"
STREAM_SYNC_CALLS = (
    r"^(cudaStreamSynchronize|hipStreamSynchronize|cuStreamSynchronize)(_ptsz|_spt)?$"
    r"|^(urQueueFinish|zeCommandQueueSynchronize|zeCommandListHostSynchronize)$"
)
EVENT_SYNC_CALLS = (
    r"^(cudaEventSynchronize|hipEventSynchronize|cuEventSynchronize)$"
    r"|^(urEventWait|zeEventHostSynchronize|zeFenceHostSynchronize)$"
)
WAIT_CALLS = "|".join((DEVICE_WAIT_CALLS, STREAM_SYNC_CALLS, EVENT_SYNC_CALLS))
"""Calls that do nothing but wait; freeing memory is work besides."""
BLOCKING_CALLS = "|".join((DEVICE_SYNC_CALLS, STREAM_SYNC_CALLS, EVENT_SYNC_CALLS))
ROCM_CLOCK_ERROR_NS = 10_000
"""Up to which ROCm's clocks of GPU and CPU disagree in good traces: a device synchronisation of
mi300x_qwen15_05b_inference returns 8.1 us before its kernel ends."""
ALLOCATION_CALLS = (
    r"^(cuda|hip|hipExt|hipHost)(Malloc|Free)|^(cuda|hip)Host(Alloc|Register|Unregister)"
    r"|^cuMem(Alloc|Free|HostAlloc|HostRegister|HostUnregister|Create|Release|Map|Unmap|SetAccess|AddressReserve)"
)

PINNED_COPY_NAME = "Pinned"
"""Copies from or to pinned memory, which don't block their call."""

NONE = -1
EMPTY_NODES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Nodes:
    """Host nodes first, then one node per activity; node ``i`` starts at vertex ``2 i`` and ends at ``2 i + 1``.

    Attributes:
        start_ns: Measured start, from the start of the trace.
        lane: Thread of a host node, stream of an activity; threads are numbered first, then streams.
        n_marks: How many of the host nodes are marks; marks come last.
        launcher: For each activity the host node that launched it, ``NONE`` if the trace lacks it.
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

    @cached_property
    def distinct_names(self) -> DistinctNames:
        """The names of the host nodes."""
        return DistinctNames.from_column(self.names)

    @property
    def is_graph_launch(self) -> Bools:
        """Whether each host node launches a CUDA graph."""
        return self.distinct_names.match(GRAPH_LAUNCH_CALLS)

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
        return np.flatnonzero(self.distinct_names.match(pattern))

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

    ``marks`` are times on CPU threads that the replay should report: ``ts_ns``, ``pid``, ``tid``.
    """
    if marks["pid"].null_count():
        marks = marks.drop_nulls("pid")
    rows, launcher = _select_calls(trace, kernels)
    origin_ns = _find_origin(trace)
    tables = (trace.ops, trace.calls, marks)
    threads = number_pairs(tables, "pid", "tid")
    lanes, host_lane = np.unique(np.concatenate([threads[1][rows], threads[2]]), return_inverse=True)
    (stream,) = number_pairs((kernels,), "device", "stream")
    stream_lane = lanes.size + np.unique(stream, return_inverse=True)[1]
    starts = [trace.ops["ts_ns"].to_numpy(), trace.calls["ts_ns"].to_numpy(), marks["ts_ns"].to_numpy()]
    durations = [trace.ops["dur_ns"].to_numpy(), trace.calls["dur_ns"].to_numpy(), np.zeros(marks.height, np.int64)]
    cover = _find_busy_intervals(
        _find_lanes(lanes, np.concatenate(threads)), np.concatenate(starts) - origin_ns, np.concatenate(durations)
    )
    start = np.concatenate([starts[1][rows], starts[2], kernels["ts_ns"].to_numpy()]) - origin_ns
    dur = np.concatenate([durations[1][rows], durations[2], kernels["dur_ns"].to_numpy()])
    correlation = fill_nulls(trace.calls["correlation"], NONE)[rows]
    return Nodes(
        start_ns=start,
        end_ns=start + dur,
        lane=np.concatenate([host_lane, stream_lane]),
        n_host=rows.size + marks.height,
        n_marks=marks.height,
        launcher=launcher,
        names=pl.concat([trace.calls["name"][rows], pl.Series("name", ["mark"]).new_from_index(0, marks.height)]),
        correlation=np.concatenate([correlation, np.full(marks.height, NONE)]),
        is_nvidia=bool(trace.call_names.match(r"^cu")[rows].any()),
        busy_lane=cover[0],
        busy_start_ns=cover[1],
        busy_end_ns=cover[2],
        origin_ns=origin_ns,
    )


def find_named_copies(kernels: pl.DataFrame, text: str) -> Bools:
    """Return which activities are copies whose name holds a text."""
    found: Bools = (kernels["kind"] == "memcpy").to_numpy().copy()
    if found.any():
        found[found] = kernels["name"].filter(pl.Series(found)).str.contains(text, literal=True).to_numpy()
    return found


def _select_calls(trace: RankTrace, kernels: pl.DataFrame) -> tuple[Ints, Ints]:
    """Select the calls that launch or block: their rows, and which of them launched each kernel, ``NONE`` for none."""
    call = fill_nulls(kernels["call"], NONE)
    chosen = trace.call_names.match(BLOCKING_CALLS)
    chosen[call[call != NONE]] = True
    place = np.append(np.cumsum(chosen) - 1, NONE)
    return np.flatnonzero(chosen), place[call]


def _find_origin(trace: RankTrace) -> int:
    tables = (trace.ops, trace.calls, trace.annotations, trace.activities)
    return min(int(table["ts_ns"][0]) for table in tables if table.height)


def _find_lanes(lanes: Ints, threads: Ints) -> Ints:
    """Return the place of each thread among those with a lane; ``NONE`` for threads without nodes."""
    if not lanes.size:
        return np.full(threads.size, NONE)
    place = np.searchsorted(lanes, threads).clip(max=lanes.size - 1)
    return np.where(lanes[place] == threads, place, NONE)


def _find_busy_intervals(lane: Ints, start: Ints, dur: Ints) -> tuple[Ints, Ints, Ints]:
    """Merge what threads are known to run into disjoint intervals, ordered by lane and start."""
    order = np.lexsort((start, lane))[np.count_nonzero(lane == NONE) :]
    lane, start, end = lane[order], start[order], start[order] + dur[order]
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


class IssuedActivities:
    """The activities of each stream in order, with their launch times."""

    def __init__(self, nodes: Nodes) -> None:
        launched = nodes.launch_start_ns
        self.streams: list[tuple[Ints, Ints]] = []
        for lane in np.unique(nodes.lane[nodes.n_host :]).tolist():
            on_lane = nodes.activities[nodes.lane[nodes.n_host :] == lane]
            on_lane = on_lane[np.argsort(nodes.start_ns[on_lane], kind="stable")]
            self.streams.append((on_lane, np.maximum.accumulate(launched[on_lane - nodes.n_host])))

    def find_last_before(self, times: Ints) -> Ints:
        """Return, per stream (row) and time (column), the last activity launched before; ``NONE`` without one."""
        found = np.full((len(self.streams), times.size), NONE)
        for row, (activities, launched) in enumerate(self.streams):
            index = np.searchsorted(launched, times) - 1
            found[row] = np.where(index >= 0, activities[index], NONE)
        return found
