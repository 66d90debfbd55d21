"""Topological order of vertices, and edges sorted by it. Algorithm only: which edges may be dropped is an argument."""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.compiled import compile_lazily

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

    Args:
        vertices: Number of vertices.
        src: Source of each edge.
        dst: Destination of each edge.
        droppable: Edges that may be left out where they contradict others.
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
