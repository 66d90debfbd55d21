"""Graphs changed: edges with other lags, without some edges, with more of them. The graph given stays as it is."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tracekit.graph.edges import Edges, Ints
from tracekit.graph.graph import Graph, acyclic_order

Bools = npt.NDArray[np.bool_]


def sources(graph: Graph) -> Ints:
    """The vertex that each edge leaves, numbered ``2 i`` for the start and ``2 i + 1`` for the end of node ``i``."""
    return np.argsort(graph.vertex)[graph.src]


def destinations(graph: Graph) -> Ints:
    """The vertex that each edge leads to, numbered as :func:`sources` does."""
    return np.argsort(graph.vertex)[_ordered_destinations(graph)]


def without(graph: Graph, dropped: Bools) -> Graph:
    """``graph`` without some of its edges; run edges have to stay."""
    kept = ~dropped
    position = np.cumsum(kept) - 1
    dst = _ordered_destinations(graph)[kept]
    return replace(
        graph,
        first=np.searchsorted(dst, np.arange(graph.first.size)),
        src=graph.src[kept],
        lag_ns=graph.lag_ns[kept],
        kind=graph.kind[kept],
        run_edge=position[graph.run_edge],
    )


def with_edges(graph: Graph, added: Edges) -> Graph:
    """``graph`` with more edges. Inferred ones that contradict others are dropped and counted."""
    src = np.concatenate([sources(graph), added.src])
    dst = np.concatenate([destinations(graph), added.dst])
    lag = np.concatenate([graph.lag_ns, added.lag_ns])
    kind = np.concatenate([graph.kind, np.full(added.src.size, added.kind, dtype=np.int8)])
    order, kept = acyclic_order(graph.vertex.size, src, dst, kind)
    vertex = np.empty(order.size, dtype=np.int64)
    vertex[order] = np.arange(order.size)
    by_dst = np.flatnonzero(kept)[np.argsort(vertex[dst[kept]], kind="stable")]
    position = np.full(src.size, -1)
    position[by_dst] = np.arange(by_dst.size)
    return replace(
        graph,
        vertex=vertex,
        first=np.searchsorted(vertex[dst[by_dst]], np.arange(order.size + 1)),
        src=vertex[src[by_dst]],
        lag_ns=lag[by_dst],
        kind=kind[by_dst],
        release_ns=graph.release_ns[graph.vertex[order]],
        run_edge=position[graph.run_edge],
        dropped=graph.dropped + int((~kept).sum()),
    )


def _ordered_destinations(graph: Graph) -> Ints:
    return np.repeat(np.arange(graph.first.size - 1), np.diff(graph.first))
