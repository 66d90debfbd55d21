"""The dependency graph as flat arrays, in an order in which every edge points forward.

Data structure and algorithm only: where the edges come from is said in the modules that build them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tracekit.arrays import Bools, Ints
from tracekit.compiled import compile_lazily
from tracekit.graph.edges import HOST_KINDS, INFERRED_KINDS, EdgeKind, Edges
from tracekit.graph.nodes import Nodes

DROPPED_EDGE = -1
"""Position of an edge that was left out."""


@dataclass(frozen=True, slots=True)
class TopologicalOrder:
    """Vertices in topological order, and edges sorted by the position of their destination.

    Attributes:
        vertex: Position of each vertex.
        edges: Remaining edges, in order.
        first: Index of each vertex's first incoming edge, by position; one entry more than there are vertices.
        position: New index of each edge; ``DROPPED_EDGE`` if it was left out.
    """

    vertex: Ints
    edges: Ints
    first: Ints
    position: Ints


def sort_topologically(vertices: int, src: Ints, dst: Ints, droppable: Bools) -> TopologicalOrder:
    """Sort a graph topologically.

    Edges that are ``droppable`` may be left out where they contradict others.
    """
    order, keep = _sort_without_cycles(vertices, src, dst, droppable)
    vertex = np.empty(vertices, dtype=np.int64)
    vertex[order] = np.arange(vertices)
    edges = np.flatnonzero(keep)[np.argsort(vertex[dst[keep]], kind="stable")]
    position = np.full(src.size, DROPPED_EDGE)
    position[edges] = np.arange(edges.size)
    return TopologicalOrder(vertex, edges, _index_first_edges(vertex[dst[edges]], vertices), position)


def _index_first_edges(vertex: Ints, vertices: int) -> Ints:
    """Return the index of each vertex's first edge once the edges are sorted by ``vertex``, plus their number."""
    return np.concatenate([[0], np.cumsum(np.bincount(vertex, minlength=vertices))])


def _sort_without_cycles(vertices: int, src: Ints, dst: Ints, droppable: Bools) -> tuple[Ints, Bools]:
    """Return a topological order and the remaining edges. Droppable edges on or behind a cycle are left out.

    Recorded edges cannot form a cycle: only inferred edges lead from the GPU back to the CPU.
    """
    by_src = np.argsort(src, kind="stable")
    first = _index_first_edges(src, vertices)
    order, count = _run_kahn(vertices, first, dst[by_src])
    keep = np.ones(src.size, dtype=np.bool_)
    if count == vertices:
        return order, keep
    stuck = np.ones(vertices, dtype=np.bool_)
    stuck[order[:count]] = False
    keep = ~(stuck[src] & stuck[dst] & droppable)
    by_src = np.flatnonzero(keep)[np.argsort(src[keep], kind="stable")]
    first = _index_first_edges(src[by_src], vertices)
    order, count = _run_kahn(vertices, first, dst[by_src])
    if count != vertices:
        raise AssertionError(f"{vertices - count} vertices of the graph lie on a cycle of recorded edges")
    return order, keep


def _run_kahn(vertices: int, first: Ints, dst: Ints) -> tuple[Ints, int]:
    """Return a topological order by Kahn's algorithm, and how many vertices could be placed."""
    order = np.empty(vertices, dtype=np.int64)
    waiting_for = np.bincount(dst, minlength=vertices)
    return order, _place_vertices(vertices, first, dst, waiting_for, order)


@compile_lazily
def _place_vertices(
    vertices: int, first: Ints, dst: Ints, waiting_for: Ints, order: Ints
) -> int:  # pragma: no cover - compiled
    placed = 0
    for vertex in range(vertices):
        if waiting_for[vertex] == 0:
            order[placed] = vertex
            placed += 1
    done = 0
    while done < placed:
        vertex = order[done]
        done += 1
        for edge in range(first[vertex], first[vertex + 1]):
            waiting_for[dst[edge]] -= 1
            if waiting_for[dst[edge]] == 0:
                order[placed] = dst[edge]
                placed += 1
    return placed


Int8Array = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class MeasuredWaits:
    """Waiting in the measured run.

    Attributes:
        derived_ns: What the edges derive again before or within each node: of CPU threads, of collectives for ranks
            that were read, and of activities for the previous one on their stream.
        hidden_ns: Before each activity, the gap within a CUDA graph that all replays share and no recorded activity
            fills.
        stalled_ns: Before each activity, how long the GPU was idle without a recorded reason; kept as measured.
    """

    derived_ns: Ints
    hidden_ns: Ints
    stalled_ns: Ints


@dataclass(frozen=True)
class Graph:
    """Starts and ends of nodes as vertices in topological order, and edges sorted by destination.

    Attributes:
        vertex: Topological position of the start (``2 i``) and end (``2 i + 1``) of node ``i``.
        first: Index of each vertex's first incoming edge; one entry more than there are vertices.
        src: Source of each edge, in topological numbering.
        lag_ns: Least distance along each edge.
        kind: :class:`~tracekit.graph.edges.EdgeKind` of each edge.
        release_ns: Earliest time of each vertex, regardless of its edges (release time).
        run_edge: Edge that holds the duration of each activity.
        transfer_edge: Edges that also hold a collective's duration: from the last rank's arrival to its end.
        transfer_activity: Activity of each transfer edge.
        kept_ns: Measured waiting of each activity that no edge derives: a replay adds it to the activity's duration.
        waits: What the measured run waited for.
        dropped: Number of inferred edges left out because they contradict others.
        recorded_waits: Number of waits of streams and calls that the trace records.
        inferred_waits: Number of waits inferred from times and names.
    """

    nodes: Nodes
    vertex: Ints
    first: Ints
    src: Ints
    lag_ns: Ints
    kind: Int8Array
    release_ns: Ints
    run_edge: Ints
    transfer_edge: Ints
    transfer_activity: Ints
    kept_ns: Ints
    waits: MeasuredWaits
    dropped: int
    recorded_waits: int = 0
    inferred_waits: int = 0

    @cached_property
    def dst(self) -> Ints:
        """Destination of each edge, in topological numbering."""
        return np.repeat(np.arange(self.first.size - 1), np.diff(self.first))

    @cached_property
    def node_vertex(self) -> Ints:
        """The inverse of ``vertex``: which ``2 i`` or ``2 i + 1`` is at each topological position."""
        inverse = np.empty_like(self.vertex)
        inverse[self.vertex] = np.arange(self.vertex.size)
        return inverse

    @cached_property
    def host_edges(self) -> Ints:
        """The edges of ``HOST_KINDS``."""
        return np.flatnonzero(np.isin(np.arange(len(EdgeKind)), HOST_KINDS)[self.kind])

    @cached_property
    def unrecorded_edges(self) -> Ints:
        """The edges that stand for work of the GPU which the trace doesn't hold."""
        return np.flatnonzero(self.kind == EdgeKind.UNRECORDED)

    @property
    def work_ns(self) -> Ints:
        """Measured duration of each activity without waiting for other ranks or for the previous activity."""
        work: Ints = self.lag_ns[self.run_edge] - self.kept_ns
        return work


@dataclass(frozen=True, slots=True)
class GraphParts:
    """Inputs of a graph. Nodes are numbered as in ``nodes``, vertices as in ``tracekit.graph.edges``.

    Attributes:
        run_ns: Duration of each node without its waits.
        edges: All edges but the run edges.
        released: Activities that start no earlier than measured, regardless of their edges.
        waits: What the measured run waited for.
    """

    nodes: Nodes
    run_ns: Ints
    edges: tuple[Edges, ...]
    released: Ints
    waits: MeasuredWaits
    recorded_waits: int = 0
    inferred_waits: int = 0


def assemble_graph(parts: GraphParts) -> Graph:
    """Sort nodes and edges topologically."""
    nodes = parts.nodes
    everything = (_build_run_edges(parts), *parts.edges)
    src = np.concatenate([e.src for e in everything])
    dst = np.concatenate([e.dst for e in everything])
    lag = np.concatenate([e.lag_ns for e in everything])
    kind = np.concatenate([np.full(e.src.size, e.kind, dtype=np.int8) for e in everything])
    order = sort_topologically(2 * nodes.start_ns.size, src, dst, np.isin(kind, INFERRED_KINDS))
    kept = order.edges
    transfer = np.flatnonzero((kind[kept] == EdgeKind.RENDEZVOUS) & (dst[kept] >= 2 * nodes.n_host))
    return Graph(
        nodes=nodes,
        vertex=order.vertex,
        first=order.first,
        src=order.vertex[src[kept]],
        lag_ns=lag[kept],
        kind=kind[kept],
        release_ns=_compute_release_times(nodes, order.vertex, order.first, parts.released),
        run_edge=order.position[nodes.n_host : nodes.start_ns.size],
        waits=parts.waits,
        dropped=src.size - kept.size,
        recorded_waits=parts.recorded_waits,
        inferred_waits=parts.inferred_waits,
        transfer_edge=transfer,
        transfer_activity=dst[kept[transfer]] // 2 - nodes.n_host,
        kept_ns=np.zeros(nodes.activities.size, dtype=np.int64),
    )


def _build_run_edges(parts: GraphParts) -> Edges:
    node = np.arange(parts.run_ns.size)
    return Edges(EdgeKind.RUN, 2 * node, 2 * node + 1, parts.run_ns)


def _compute_release_times(nodes: Nodes, vertex: Ints, first: Ints, released: Ints) -> Ints:
    """Return release times: nodes without incoming edges, and those in ``released``, start when they were measured.

    Nothing in the trace explains when these start: the first call of a thread, or work launched before the trace.
    """
    release = np.zeros(vertex.size, dtype=np.int64)
    unexplained = find_unexplained(vertex, first, released)
    release[vertex[2 * unexplained]] = nodes.start_ns[unexplained]
    return release


def find_unexplained(vertex: Ints, first: Ints, released: Ints) -> Ints:
    """Find the nodes whose start nothing in the trace explains.

    ``vertex`` and ``first`` are as in :class:`Graph`, ``released`` as in :class:`GraphParts`.
    """
    start = vertex[0::2]
    unexplained = first[start] == first[start + 1]
    unexplained[released] = True
    found: Ints = np.flatnonzero(unexplained)
    return found
