"""Time of the GPU of which the trace doesn't say what it was: replays in which it takes longer, shorter or no time.

* Work that isn't recorded, though the CPU waited for it (:mod:`tracekit.graph.inferred.unrecorded_work`).
* Gaps that nothing explains: within CUDA graphs, stalls, and those before activities whose launch wasn't recorded. In a
  trace without any launch, the distances between the marks of steps are of this kind, too.
"""

from dataclasses import dataclass, replace

import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.semantics.streams import MAX_GAP_NS


@dataclass(frozen=True, slots=True)
class UnknownTimes:
    """Factors on the time of which the trace doesn't say what it was.

    Attributes:
        unrecorded: On work that isn't recorded.
        unexplained: On gaps that nothing explains.
    """

    unrecorded: float = 1.0
    unexplained: float = 1.0


MEASURED_TIMES = UnknownTimes()


def scale_unknown_time(graph: Graph, times: UnknownTimes) -> Graph:
    """Return a graph in which the time of unknown origin takes longer or shorter.

    Args:
        graph: A graph with the measured times.
        times: The factors.
    """
    unexplained = _find_unexplained_edges(graph)
    if times == MEASURED_TIMES or not (graph.unrecorded_edges.size or unexplained.any()):
        return graph
    lag_ns = graph.lag_ns.copy()
    for edges, factor in ((graph.unrecorded_edges, times.unrecorded), (unexplained, times.unexplained)):
        lag_ns[edges] = np.rint(lag_ns[edges] * factor)
    return replace(graph, lag_ns=lag_ns, release_ns=_scale_releases(graph, times.unexplained))


def _find_unexplained_edges(graph: Graph) -> Bools:
    found = (graph.kind == EdgeKind.STALL) | ((graph.kind == EdgeKind.STREAM) & (graph.lag_ns > MAX_GAP_NS))
    if not (graph.kind == EdgeKind.LAUNCH).any():
        nodes = graph.nodes
        at_mark = np.zeros(graph.vertex.size, dtype=np.bool_)
        at_mark[graph.vertex[2 * np.arange(nodes.n_host - nodes.n_marks, nodes.n_host)]] = True
        found |= (graph.kind == EdgeKind.PROGRAM) & at_mark[graph.dst]
    unexplained: Bools = found
    return unexplained


def _scale_releases(graph: Graph, factor: float) -> Ints:
    """Scale the gaps before activities that start when they were measured, as no edge holds them."""
    activities = graph.nodes.activities
    start, end = graph.nodes.start_ns[activities], graph.nodes.end_ns[activities]
    order = np.argsort(start, kind="stable")
    gap = np.zeros(order.size, dtype=np.int64)
    gap[1:] = start[order[1:]] - np.maximum.accumulate(end[order])[:-1]
    idle_ns = np.empty_like(gap)
    idle_ns[order] = np.cumsum(np.where(gap > MAX_GAP_NS, gap, 0))
    vertex = graph.vertex[2 * activities]
    held = graph.first[vertex] == graph.first[vertex + 1]
    release_ns = graph.release_ns.copy()
    moved = np.rint((factor - 1) * idle_ns[held]).astype(np.int64)
    release_ns[vertex[held]] = np.maximum(release_ns[vertex[held]] + moved, 0)
    return release_ns
