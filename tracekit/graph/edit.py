"""Edits of a graph: change lags, remove edges, insert edges or activities. The input graph stays unchanged.

Neither semantics nor heuristics: array operations that other modules use.
"""

from dataclasses import replace

import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.graph.edges import EdgeKind, Edges
from tracekit.graph.graph import DROPPED_EDGE, Graph, sort_topologically
from tracekit.graph.nodes import NONE


def compute_edge_sources(graph: Graph) -> Ints:
    """Return each edge's source vertex, numbered ``2 i`` for the start and ``2 i + 1`` for the end of node ``i``."""
    return graph.node_vertex[graph.src]


def compute_edge_destinations(graph: Graph) -> Ints:
    """Return the destination vertex of each edge, numbered as in :func:`compute_edge_sources`."""
    return graph.node_vertex[graph.dst]


def remove_edges(graph: Graph, dropped: Bools) -> Graph:
    """Remove the edges in ``dropped``. Run edges must stay."""
    kept = ~dropped
    position = np.where(kept, np.cumsum(kept) - 1, DROPPED_EDGE)
    changed = replace(
        graph,
        first=np.concatenate([[0], np.cumsum(kept)])[graph.first],
        src=graph.src[kept],
        lag_ns=graph.lag_ns[kept],
        kind=graph.kind[kept],
    )
    return _remap_edges(changed, position)


def insert_edges(graph: Graph, *added: Edges) -> Graph:
    """Insert edges. Inserted edges that contradict the graph are left out and counted in ``Graph.dropped``."""
    src = np.concatenate([compute_edge_sources(graph), *(edges.src for edges in added)])
    dst = np.concatenate([compute_edge_destinations(graph), *(edges.dst for edges in added)])
    lag = np.concatenate([graph.lag_ns, *(edges.lag_ns for edges in added)])
    kind = np.concatenate([graph.kind, *(np.full(edges.src.size, edges.kind, dtype=np.int8) for edges in added)])
    is_added = np.arange(src.size) >= graph.src.size
    order = sort_topologically(graph.vertex.size, src, dst, is_added)
    kept = order.edges
    release_ns = np.empty_like(graph.release_ns)
    release_ns[order.vertex] = graph.release_ns[graph.vertex]
    changed = replace(
        graph,
        vertex=order.vertex,
        first=order.first,
        src=order.vertex[src[kept]],
        lag_ns=lag[kept],
        kind=kind[kept],
        release_ns=release_ns,
        dropped=graph.dropped + src.size - kept.size,
    )
    return _remap_edges(changed, order.position)


def insert_activities(graph: Graph, lane: Ints, at_ns: Ints) -> Graph:
    """Insert activities of zero duration without dependencies, behind the existing activities.

    Vertices and edges of the existing graph keep their numbers::

        nodes:  ... existing activities | new 0 | new 1 | ...
        edges:  ... existing edges      | RUN 0 | RUN 1 | ...   (start -> end, lag 0)

    Streams ``lane`` are numbered as in ``graph.nodes``; ``at_ns``, from the start of the trace, counts as measured
    start and end.
    """
    nodes, count = graph.nodes, lane.size
    added = np.zeros(count, dtype=np.int64)
    vertices, edges = graph.vertex.size, graph.src.size
    number = np.arange(count)
    return replace(
        graph,
        nodes=replace(
            nodes,
            start_ns=np.concatenate([nodes.start_ns, at_ns]),
            end_ns=np.concatenate([nodes.end_ns, at_ns]),
            lane=np.concatenate([nodes.lane, lane]),
            launcher=np.concatenate([nodes.launcher, added + NONE]),
        ),
        vertex=np.concatenate([graph.vertex, vertices + np.arange(2 * count)]),
        first=np.concatenate([graph.first, np.repeat(edges + number, 2)[1:], [edges + count]]),
        src=np.concatenate([graph.src, vertices + 2 * number]),
        lag_ns=np.concatenate([graph.lag_ns, added]),
        kind=np.concatenate([graph.kind, np.full(count, EdgeKind.RUN, dtype=np.int8)]),
        release_ns=np.concatenate([graph.release_ns, np.repeat(added, 2)]),
        run_edge=np.concatenate([graph.run_edge, edges + number]),
        kept_ns=np.concatenate([graph.kept_ns, added]),
    )


def _remap_edges(graph: Graph, position: Ints) -> Graph:
    """Update the graph's references to edges after edges have moved to ``position``."""
    transfer = position[graph.transfer_edge]
    there = transfer != DROPPED_EDGE
    return replace(
        graph,
        run_edge=position[graph.run_edge],
        transfer_edge=transfer[there],
        transfer_activity=graph.transfer_activity[there],
    )
