"""Follow binding edges back in time to explain why a vertex came no earlier.

Every vertex has one binding edge: the incoming edge that allows it last. Following these edges back explains a time
range segment by segment. Time that no edge explains (the measured time minus what the edges allow, or work from before
the trace) is a segment without an edge. Example, an idle gap of a GPU from 10 to 20::

    10             16        19  20
    |-- host work --|- launch -|--|   kernel starts at 20
      program edge   launch edge  no edge: measured 20, allowed 19
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.compiled import compile_lazily
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.semantics import MAX_GAP_NS
from tracekit.replay.engine import Timeline, build_measured_timeline, replay

NO_EDGE = -1


@dataclass(frozen=True, slots=True)
class TimeRanges:
    """Time ranges to explain.

    Attributes:
        vertex: The vertex, in topological numbering, whose time is to be explained; not earlier than the end.
    """

    begin_ns: Ints
    end_ns: Ints
    vertex: Ints

    def select(self, rows: slice) -> "TimeRanges":
        """Return some of the time ranges."""
        return TimeRanges(self.begin_ns[rows], self.end_ns[rows], self.vertex[rows])


@dataclass(frozen=True, slots=True)
class BindingPath:
    """Segments that fill the time ranges without gap or overlap; within a time range the latest comes first.

    Attributes:
        range_index: The time range that each segment belongs to.
        edge: The binding edge; ``NO_EDGE`` if no edge explains the segment.
        vertex: The destination of the edge, or the vertex at which the explanation ends.
    """

    range_index: Ints
    edge: Ints
    vertex: Ints
    begin_ns: Ints
    end_ns: Ints

    @property
    def dur_ns(self) -> Ints:
        """Durations of the segments."""
        return self.end_ns - self.begin_ns


def get_vertex_times(graph: Graph, timeline: Timeline) -> Ints:
    """Return the time of every vertex, in topological numbering."""
    times = np.empty(graph.vertex.size, dtype=np.int64)
    times[graph.vertex[0::2]] = timeline.start_ns
    times[graph.vertex[1::2]] = timeline.end_ns
    return times


def follow_binding_edges(graph: Graph, timeline: Timeline, stretches: TimeRanges) -> BindingPath:
    """Explain each time range by its binding edges, from its end back to its start."""
    walk = _Walk(graph, timeline, stretches)
    pieces = np.empty((int(walk.count_segments().sum()), 5), dtype=np.int64)
    walk.write_segments(pieces)
    return BindingPath(*np.ascontiguousarray(pieces.T))


def split_time_ranges(graph: Graph, timeline: Timeline, stretches: TimeRanges, most: int) -> Iterator[slice]:
    """Yield consecutive parts of the time ranges with at most so many segments, if no range alone has more.

    Every stream's gaps can lead back over the whole timeline, so that all segments together can outgrow memory.
    """
    until = np.cumsum(_Walk(graph, timeline, stretches).count_segments())
    first, before = 0, 0
    while first < until.size:
        end = max(int(np.searchsorted(until, before + most, side="right")), first + 1)
        yield slice(first, end)
        first, before = end, int(until[end - 1])


class _Walk:
    """The way back along the binding edges of some time ranges."""

    def __init__(self, graph: Graph, timeline: Timeline, stretches: TimeRanges) -> None:
        times = get_vertex_times(graph, timeline)
        self._size = stretches.vertex.size
        self._arguments = (
            find_binding_edges(graph, timeline.lag_ns, times),
            graph.src,
            timeline.lag_ns,
            times,
            stretches.begin_ns,
            stretches.end_ns,
            stretches.vertex,
            self._size,
        )

    def count_segments(self) -> Ints:
        """Count the segments of each time range."""
        counts = np.zeros(self._size, dtype=np.int64)
        _walk_back(*self._arguments, counts, 0, np.empty((0, 5), dtype=np.int64))
        return counts

    def write_segments(self, pieces: Ints) -> None:
        """Write a row per segment: time range, edge, vertex, begin, end."""
        _walk_back(*self._arguments, np.zeros(self._size, dtype=np.int64), len(pieces), pieces)


def get_nodes(graph: Graph, vertex: Ints) -> Ints:
    """Return the node of each vertex in topological numbering."""
    return graph.node_vertex[vertex] // 2


def get_edge_kinds(graph: Graph, trail: BindingPath) -> Ints:
    """Return the :class:`~tracekit.graph.edges.EdgeKind` of each segment; ``NO_EDGE`` without an edge."""
    return np.where(trail.edge == NO_EDGE, NO_EDGE, graph.kind[trail.edge]).astype(np.int64)


def find_long_stream_gaps(graph: Graph, trail: BindingPath) -> Bools:
    """Find segments between activities of one stream that are too long for a launch gap and hide unrecorded work."""
    far: Bools = (get_edge_kinds(graph, trail) == EdgeKind.STREAM) & (graph.lag_ns[trail.edge] > MAX_GAP_NS)
    return far


def find_binding_edges(graph: Graph, lag_ns: Ints, times: Ints) -> Ints:
    """Return the binding edge of every vertex: the incoming edge that allows it last; ``NO_EDGE`` without one."""
    binding = np.full(times.size, NO_EDGE, dtype=np.int64)
    _find_binding_edges(times.size, graph.first, graph.src, lag_ns, times, binding)
    return binding


@compile_lazily
def _find_binding_edges(
    vertices: int, first: Ints, src: Ints, lag_ns: Ints, times: Ints, binding: Ints
) -> int:  # pragma: no cover - compiled
    for vertex in range(vertices):
        latest = times[vertex]
        for edge in range(first[vertex], first[vertex + 1]):
            allowed = times[src[edge]] + lag_ns[edge]
            if edge == first[vertex] or allowed > latest:
                latest = allowed
                binding[vertex] = edge
    return 0


@compile_lazily
def _walk_back(
    binding: Ints,
    src: Ints,
    lag_ns: Ints,
    times: Ints,
    begin_ns: Ints,
    end_ns: Ints,
    last: Ints,
    stretches: int,
    counts: Ints,
    room: int,
    pieces: Ints,
) -> int:  # pragma: no cover - compiled
    """Write the segments as rows (time range, edge, vertex, begin, end) if there is room, and count each range's."""
    count = 0
    for stretch in range(stretches):
        before = count
        begin, now, vertex = begin_ns[stretch], end_ns[stretch], last[stretch]
        while now > begin:
            edge = binding[vertex]
            allowed = begin if edge == NO_EDGE else max(begin, times[src[edge]] + lag_ns[edge])
            came = allowed if edge == NO_EDGE else max(begin, times[src[edge]])
            for cause, until in ((NO_EDGE, allowed), (edge, came)):
                if until < now:
                    if count < room:
                        pieces[5 * count] = stretch
                        pieces[5 * count + 1] = cause
                        pieces[5 * count + 2] = vertex
                        pieces[5 * count + 3] = until
                        pieces[5 * count + 4] = now
                    count += 1
                    now = until
            if now > begin:
                vertex = src[edge]
        counts[stretch] = count - before
    return count


@dataclass(frozen=True, slots=True)
class GraphSelfCheck:
    """A graph compared with the measured times.

    Attributes:
        exact_error_ns: Largest error of a replay whose lags reproduce the measurement. A value other than 0 is an
            error of the graph: a vertex without a binding edge, or an edge that points back in time.
        start_error_us: Distance between replayed and measured starts of activities, by quantile: ``{0.5: ..., 0.99:
            ...}``.
        edge_kind_stats: One row per kind of edge, ``edge``: ``edges``, their number; ``lag_us``, ``low_us``,
            ``high_us``, median and 10 % and 90 % quantiles of the lag; ``binds``, number of vertices that such an
            edge binds; ``beyond_us``, median time by which these vertices came later than the edge allows.
        recorded_waits: Number of waits of streams and calls that the trace records.
        inferred_waits: Number of waits inferred from times and names.
        dropped: Number of inferred edges that were left out because they contradict others.
    """

    exact_error_ns: int
    start_error_us: dict[float, float]
    edge_kind_stats: pl.DataFrame
    recorded_waits: int
    inferred_waits: int
    dropped: int


def run_self_check(graph: Graph) -> GraphSelfCheck:
    """Compare a graph with the measured times."""
    recorded, derived = build_measured_timeline(graph), replay(graph)
    exact = replay(make_exact_graph(graph))
    nodes = graph.nodes
    late = np.abs(derived.activity_start_ns - recorded.activity_start_ns) / 1e3
    return GraphSelfCheck(
        exact_error_ns=int(
            max(np.abs(exact.start_ns - nodes.start_ns).max(), np.abs(exact.end_ns - nodes.end_ns).max())
        ),
        start_error_us={part: float(np.quantile(late, part)) for part in (0.5, 0.99)},
        edge_kind_stats=_summarize_edge_kinds(graph),
        recorded_waits=graph.recorded_waits,
        inferred_waits=graph.inferred_waits,
        dropped=graph.dropped,
    )


def make_exact_graph(graph: Graph) -> Graph:
    """Return the graph with lags that reproduce every measured time.

    No edge then allows a later time than measured, and one edge per vertex allows exactly the measured time.
    """
    times = get_vertex_times(graph, build_measured_timeline(graph))
    lag, _ = _compute_exact_lags(graph, times)
    held = np.diff(graph.first) > 0
    return replace(
        graph,
        lag_ns=lag,
        release_ns=np.where(held, np.minimum(graph.release_ns, times), times),
        kept_ns=np.zeros_like(graph.kept_ns),
        transfer_edge=graph.transfer_edge[:0],
        transfer_activity=graph.transfer_activity[:0],
    )


def _summarize_edge_kinds(graph: Graph) -> pl.DataFrame:
    times = get_vertex_times(graph, build_measured_timeline(graph))
    _, binding = _compute_exact_lags(graph, times)
    binds = np.zeros(graph.src.size, dtype=np.bool_)
    binds[binding] = True
    table = pl.DataFrame(
        {
            "kind": graph.kind,
            "lag": graph.lag_ns / 1e3,
            "binds": binds,
            "beyond": (times[graph.dst] - times[graph.src] - graph.lag_ns) / 1e3,
        }
    )
    names = {int(kind): kind.name.lower() for kind in EdgeKind}
    summed = table.group_by("kind").agg(
        edges=pl.len(),
        lag_us=pl.col("lag").median(),
        low_us=pl.col("lag").quantile(0.1),
        high_us=pl.col("lag").quantile(0.9),
        binds=pl.col("binds").sum(),
        beyond_us=pl.col("beyond").filter("binds").median(),
    )
    return summed.sort("kind").with_columns(pl.col("kind").replace_strict(names)).rename({"kind": "edge"})


def _compute_exact_lags(graph: Graph, times: Ints) -> tuple[Ints, Ints]:
    """Return the lags that allow the measured times, and the binding edges."""
    found = find_binding_edges(graph, graph.lag_ns, times)
    binding = found[found != NO_EDGE]
    apart = np.repeat(times, np.diff(graph.first)) - times[graph.src]
    exact = np.minimum(graph.lag_ns, apart)
    exact[binding] = apart[binding]
    return exact, binding
