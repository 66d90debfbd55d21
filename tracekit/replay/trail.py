"""Why a moment came no earlier: the way back along the edges that bind.

At every vertex one incoming edge binds, the one that allows it last. Following those edges back explains a stretch of
time piece by piece; what the edges leave over (the difference of a measured time from what they allow, or work that
was under way before the trace) is a piece without an edge.
"""

from dataclasses import dataclass

import numba
import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.streams import MAX_GAP_NS
from tracekit.replay.engine import Timeline

NO_EDGE = -1


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of time to explain.

    Attributes:
        begin_ns: Where each one begins.
        end_ns: Where it ends.
        vertex: The vertex, in topological numbering, that came no earlier than its end.
    """

    begin_ns: Ints
    end_ns: Ints
    vertex: Ints


@dataclass(frozen=True, slots=True)
class Trail:
    """Pieces that fill the stretches without gap or overlap; within a stretch the latest comes first.

    Attributes:
        stretch: Which stretch each piece belongs to.
        edge: The edge that holds it; ``NO_EDGE`` where none does.
        vertex: The vertex that the edge leads to, or at which the explanation ends.
        begin_ns: Where the piece begins.
        end_ns: Where it ends.
    """

    stretch: Ints
    edge: Ints
    vertex: Ints
    begin_ns: Ints
    end_ns: Ints

    @property
    def dur_ns(self) -> Ints:
        """Lengths of the pieces."""
        return self.end_ns - self.begin_ns


def vertex_times(graph: Graph, timeline: Timeline) -> Ints:
    """The time of every vertex, in topological numbering."""
    times = np.empty(graph.vertex.size, dtype=np.int64)
    times[graph.vertex[0::2]] = timeline.start_ns
    times[graph.vertex[1::2]] = timeline.end_ns
    return times


def follow(graph: Graph, timeline: Timeline, stretches: Stretches) -> Trail:
    """Explain each stretch by the edges that bind, back from its end.

    Args:
        graph: The dependency graph.
        timeline: Measured or replayed.
        stretches: What to explain.
    """
    times = vertex_times(graph, timeline)
    binding = binding_edges(graph, timeline.lag_ns, times)
    arguments = (
        binding,
        graph.src,
        timeline.lag_ns,
        times,
        stretches.begin_ns,
        stretches.end_ns,
        stretches.vertex,
    )
    nothing = np.empty((0, 5), dtype=np.int64)
    pieces = np.empty((_walk(*arguments, nothing), 5), dtype=np.int64)
    _walk(*arguments, pieces)
    return Trail(*np.ascontiguousarray(pieces.T))


def nodes_of(graph: Graph, vertex: Ints) -> Ints:
    """The node of each vertex in topological numbering."""
    node = np.empty(graph.vertex.size, dtype=np.int64)
    node[graph.vertex] = np.arange(graph.vertex.size) // 2
    return node[vertex]


def kinds(graph: Graph, trail: Trail) -> Ints:
    """:class:`~tracekit.graph.edges.EdgeKind` of each piece; ``NO_EDGE`` where none holds it."""
    return np.where(trail.edge == NO_EDGE, NO_EDGE, graph.kind[trail.edge]).astype(np.int64)


def far_apart(graph: Graph, trail: Trail) -> Bools:
    """Pieces between activities of one stream that are too long for a gap: something lay between them, unrecorded."""
    far: Bools = (kinds(graph, trail) == EdgeKind.STREAM) & (graph.lag_ns[trail.edge] > MAX_GAP_NS)
    return far


def binding_edges(graph: Graph, lag_ns: Ints, times: Ints) -> Ints:
    """The incoming edge of every vertex that allows it last; ``NO_EDGE`` without one."""
    return _binding(graph.first, graph.src, lag_ns, times)


@numba.njit(cache=True)
def _binding(first: Ints, src: Ints, lag_ns: Ints, times: Ints) -> Ints:  # pragma: no cover - compiled
    binding = np.full(first.size - 1, NO_EDGE, dtype=np.int64)
    for vertex in range(binding.size):
        latest = np.iinfo(np.int64).min
        for edge in range(first[vertex], first[vertex + 1]):
            allowed = times[src[edge]] + lag_ns[edge]
            if allowed > latest:
                latest = allowed
                binding[vertex] = edge
    return binding


@numba.njit(cache=True)
def _walk(
    binding: Ints, src: Ints, lag_ns: Ints, times: Ints, begin_ns: Ints, end_ns: Ints, last: Ints, pieces: Ints
) -> int:  # pragma: no cover - compiled
    """Number of pieces; writes them as rows stretch, edge, vertex, begin, end if there is room."""
    count = 0
    for stretch in range(begin_ns.size):
        begin, now, vertex = begin_ns[stretch], end_ns[stretch], last[stretch]
        while now > begin:
            edge = binding[vertex]
            allowed = begin if edge == NO_EDGE else max(begin, times[src[edge]] + lag_ns[edge])
            if allowed < now:
                if count < pieces.shape[0]:
                    pieces[count] = (stretch, NO_EDGE, vertex, allowed, now)
                count += 1
                now = allowed
            if now <= begin:
                break
            came = max(begin, times[src[edge]])
            if came < now:
                if count < pieces.shape[0]:
                    pieces[count] = (stretch, edge, vertex, came, now)
                count += 1
                now = came
            vertex = src[edge]
    return count
