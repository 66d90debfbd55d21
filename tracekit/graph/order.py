"""A topological order of vertices, and edges sorted by it."""

from dataclasses import dataclass

import numba
import numpy as np

from tracekit.arrays import Bools, Ints

GONE = -1
"""As the position of an edge: it isn't there any more."""


@dataclass(frozen=True, slots=True)
class Order:
    """Vertices in topological order, and edges sorted by their destination in it.

    Attributes:
        vertex: Position of each vertex.
        edges: The edges that are kept, in order.
        first: Where each vertex's incoming edges begin, by position; one entry more than there are vertices.
        position: Where each edge lies now; ``GONE`` if it is left out.
    """

    vertex: Ints
    edges: Ints
    first: Ints
    position: Ints


def edges_in_order(vertices: int, src: Ints, dst: Ints, droppable: Bools) -> Order:
    """Sort a graph topologically.

    Args:
        vertices: How many there are.
        src: Source of each edge.
        dst: Destination of each edge.
        droppable: Edges that may be left out where they contradict others.
    """
    order, keep = _acyclic_order(vertices, src, dst, droppable)
    vertex = np.empty(vertices, dtype=np.int64)
    vertex[order] = np.arange(vertices)
    edges = np.flatnonzero(keep)[np.argsort(vertex[dst[keep]], kind="stable")]
    position = np.full(src.size, GONE)
    position[edges] = np.arange(edges.size)
    return Order(vertex, edges, np.searchsorted(vertex[dst[edges]], np.arange(vertices + 1)), position)


def _acyclic_order(vertices: int, src: Ints, dst: Ints, droppable: Bools) -> tuple[Ints, Bools]:
    """A topological order, and the edges it keeps: droppable ones that lie on or behind a cycle are left out.

    Recorded edges can't make a cycle, as only inferred ones lead from the GPU back to the CPU.
    """
    by_src = np.argsort(src, kind="stable")
    first = np.searchsorted(src[by_src], np.arange(vertices + 1))
    order, count = _sort(vertices, first, dst[by_src])
    keep = np.ones(src.size, dtype=np.bool_)
    if count == vertices:
        return order, keep
    stuck = np.ones(vertices, dtype=np.bool_)
    stuck[order[:count]] = False
    keep = ~(stuck[src] & stuck[dst] & droppable)
    by_src = np.flatnonzero(keep)[np.argsort(src[keep], kind="stable")]
    first = np.searchsorted(src[by_src], np.arange(vertices + 1))
    order, count = _sort(vertices, first, dst[by_src])
    if count != vertices:
        raise AssertionError(f"{vertices - count} vertices of the graph lie on a cycle of recorded edges")
    return order, keep


@numba.njit(cache=True)
def _sort(vertices: int, first: Ints, dst: Ints) -> tuple[Ints, int]:  # pragma: no cover - compiled
    """Kahn's algorithm: a topological order, and how many vertices it could place."""
    waiting_for = np.zeros(vertices, dtype=np.int64)
    for edge in range(dst.size):
        waiting_for[dst[edge]] += 1
    order = np.empty(vertices, dtype=np.int64)
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
    return order, placed
