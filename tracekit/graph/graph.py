"""The dependency graph as flat arrays, in an order in which every edge points forward."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.arrays import Ints
from tracekit.graph.edges import INFERRED, EdgeKind, Edges
from tracekit.graph.nodes import Nodes
from tracekit.graph.order import edges_in_order

Int8s = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Graph:
    """Vertices are starts and ends of nodes, numbered in topological order; edges lie sorted by destination.

    Attributes:
        nodes: The nodes.
        vertex: Position in topological order of the start (``2 i``) and end (``2 i + 1``) of node ``i``.
        first: Where each vertex's incoming edges begin; one entry more than there are vertices.
        src: Source of each edge, in topological numbering.
        lag_ns: Least distance along each edge.
        kind: :class:`~tracekit.graph.edges.EdgeKind` of each edge.
        release_ns: When a vertex may come at the earliest, whatever it waits for.
        run_edge: The edge that holds each activity's duration.
        transfer_edge: Edges that hold a collective's duration as well: from the last rank's arrival to its end.
        transfer_activity: The activity of each of them.
        kept_ns: Measured waiting of each activity that no edge derives: a replay adds it to the activity's duration.
        waited_ns: Measured waiting of CPU threads, and within activities for the one before on their stream, that the
            edges derive again, summed.
        dropped: Inferred edges left out because they contradict others.
        recorded_waits: Waits of streams and calls that the trace records.
        inferred_waits: Those guessed from times and names.
        hidden_ns: Time within CUDA graphs that was taken from their replays, as nothing recorded fills it.
        stalled_ns: Time that the GPU stood still for nothing recorded, kept as measured.
    """

    nodes: Nodes
    vertex: Ints
    first: Ints
    src: Ints
    lag_ns: Ints
    kind: Int8s
    release_ns: Ints
    run_edge: Ints
    transfer_edge: Ints
    transfer_activity: Ints
    kept_ns: Ints
    waited_ns: int
    dropped: int
    recorded_waits: int = 0
    inferred_waits: int = 0
    hidden_ns: int = 0
    stalled_ns: int = 0

    @property
    def dst(self) -> Ints:
        """Destination of each edge, in topological numbering."""
        return np.repeat(np.arange(self.first.size - 1), np.diff(self.first))

    @property
    def work_ns(self) -> Ints:
        """How long each activity works, as measured, without waiting for other ranks or for the one before."""
        work: Ints = self.lag_ns[self.run_edge] - self.kept_ns
        return work


@dataclass(frozen=True, slots=True)
class Parts:
    """What a graph is made of; nodes are numbered as in ``nodes``, vertices as in ``tracekit.graph.edges``.

    Attributes:
        nodes: The nodes.
        run_ns: How long each node takes without its waits.
        edges: All but the run edges.
        released: Activities that come no earlier than measured, whatever else they wait for.
        waited_ns: Measured waiting of CPU threads, and within activities for the one before, that the edges derive.
        recorded_waits: Waits that the trace records.
        inferred_waits: Waits that were guessed.
        hidden_ns: Time within CUDA graphs that their replays agree on.
        stalled_ns: Time that the GPU stood still for nothing recorded.
    """

    nodes: Nodes
    run_ns: Ints
    edges: tuple[Edges, ...]
    released: Ints
    waited_ns: int
    recorded_waits: int = 0
    inferred_waits: int = 0
    hidden_ns: int = 0
    stalled_ns: int = 0


def assemble(parts: Parts) -> Graph:
    """Sort nodes and edges topologically."""
    nodes = parts.nodes
    everything = (_run_edges(parts), *parts.edges)
    src = np.concatenate([e.src for e in everything])
    dst = np.concatenate([e.dst for e in everything])
    lag = np.concatenate([e.lag_ns for e in everything])
    kind = np.concatenate([np.full(e.src.size, e.kind, dtype=np.int8) for e in everything])
    order = edges_in_order(2 * nodes.start_ns.size, src, dst, np.isin(kind, INFERRED))
    kept = order.edges
    transfer = np.flatnonzero((kind[kept] == EdgeKind.RENDEZVOUS) & (dst[kept] >= 2 * nodes.cpu))
    return Graph(
        nodes=nodes,
        vertex=order.vertex,
        first=order.first,
        src=order.vertex[src[kept]],
        lag_ns=lag[kept],
        kind=kind[kept],
        release_ns=_release(nodes, order.vertex, order.first, parts.released),
        run_edge=order.position[nodes.cpu : nodes.start_ns.size],
        waited_ns=parts.waited_ns,
        dropped=src.size - kept.size,
        recorded_waits=parts.recorded_waits,
        inferred_waits=parts.inferred_waits,
        hidden_ns=parts.hidden_ns,
        stalled_ns=parts.stalled_ns,
        transfer_edge=transfer,
        transfer_activity=dst[kept[transfer]] // 2 - nodes.cpu,
        kept_ns=np.zeros(nodes.activities.size, dtype=np.int64),
    )


def _run_edges(parts: Parts) -> Edges:
    node = np.arange(parts.run_ns.size)
    return Edges(EdgeKind.RUN, 2 * node, 2 * node + 1, parts.run_ns)


def _release(nodes: Nodes, vertex: Ints, first: Ints, released: Ints) -> Ints:
    """What nothing in the trace explains (a thread's first call, work launched earlier) starts when it was measured."""
    release = np.zeros(vertex.size, dtype=np.int64)
    start = vertex[0::2]
    unexplained = first[start] == first[start + 1]
    unexplained[released] = True
    release[start[unexplained]] = nodes.start_ns[unexplained]
    return release
