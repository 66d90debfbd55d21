"""Graphs changed: other lags, fewer edges, more edges or activities. The graph given stays as it is."""

from dataclasses import replace

import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.graph.edges import EdgeKind, Edges
from tracekit.graph.graph import Graph
from tracekit.graph.nodes import NONE
from tracekit.graph.order import GONE, edges_in_order


def sources(graph: Graph) -> Ints:
    """The vertex that each edge leaves, numbered ``2 i`` for the start and ``2 i + 1`` for the end of node ``i``."""
    return np.argsort(graph.vertex)[graph.src]


def destinations(graph: Graph) -> Ints:
    """The vertex that each edge leads to, numbered as :func:`sources` does."""
    return np.argsort(graph.vertex)[graph.dst]


def without(graph: Graph, dropped: Bools) -> Graph:
    """``graph`` without some of its edges; run edges have to stay."""
    kept = ~dropped
    position = np.where(kept, np.cumsum(kept) - 1, GONE)
    dst = graph.dst[kept]
    changed = replace(
        graph,
        first=np.searchsorted(dst, np.arange(graph.first.size)),
        src=graph.src[kept],
        lag_ns=graph.lag_ns[kept],
        kind=graph.kind[kept],
    )
    return _moved(changed, position)


def with_edges(graph: Graph, *added: Edges) -> Graph:
    """``graph`` with more edges; added ones that contradict it are left out, and counted among the dropped."""
    src = np.concatenate([sources(graph), *(edges.src for edges in added)])
    dst = np.concatenate([destinations(graph), *(edges.dst for edges in added)])
    lag = np.concatenate([graph.lag_ns, *(edges.lag_ns for edges in added)])
    kind = np.concatenate([graph.kind, *(np.full(edges.src.size, edges.kind, dtype=np.int8) for edges in added)])
    is_added = np.arange(src.size) >= graph.src.size
    order = edges_in_order(graph.vertex.size, src, dst, is_added)
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
    return _moved(changed, order.position)


def with_activities(graph: Graph, lane: Ints, at_ns: Ints) -> Graph:
    """``graph`` with more activities, which take no time and wait for nothing yet; they follow the others.

    Args:
        graph: The graph.
        lane: The stream of each, numbered as in its nodes.
        at_ns: When each is noted to have run, from the start of the trace.
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


def _moved(graph: Graph, position: Ints) -> Graph:
    """``graph`` with its references to edges where these lie now."""
    transfer = position[graph.transfer_edge]
    there = transfer != GONE
    return replace(
        graph,
        run_edge=position[graph.run_edge],
        transfer_edge=transfer[there],
        transfer_activity=graph.transfer_activity[there],
    )
