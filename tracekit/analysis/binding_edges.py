"""Follow binding edges back in time to explain why a vertex came no earlier.

Every vertex has one binding edge: the incoming edge that allows it last. Following these edges back explains a time
range segment by segment. Time that no edge explains (the measured time minus what the edges allow, or work from before
the trace) is a segment without an edge. Example, an idle gap of a GPU from 10 to 20::

    10             16        19  20
    |-- host work --|- launch -|--|   kernel starts at 20
      program edge   launch edge  no edge: measured 20, allowed 19
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.compiled import compile_lazily
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.semantics import MAX_GAP_NS
from tracekit.replay.engine import Timeline

NO_EDGE = -1


@dataclass(frozen=True, slots=True)
class TimeRanges:
    """Time ranges to explain.

    Attributes:
        begin_ns: Start of each time range.
        end_ns: End of each time range.
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
        begin_ns: Start of the segment.
        end_ns: End of the segment.
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
    """Explain each time range by its binding edges, from its end back to its start.

    Args:
        graph: The dependency graph.
        timeline: Measured or replayed.
        stretches: The time ranges.
    """
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
