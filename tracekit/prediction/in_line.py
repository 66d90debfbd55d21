"""Collectives put between two kernels of a stream, beside which nothing runs."""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.change import destinations, with_activities, with_edges
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.events import DEFAULT_LAG_NS
from tracekit.graph.nodes import NONE
from tracekit.graph.streams import DEFAULT_GAP_NS
from tracekit.prediction.added import NEVER, beside, slower_host
from tracekit.prediction.spread import OTHER_HOST


def launched_by(graph: Graph, activity: Ints) -> Ints:
    """The call that launches each activity; ``NONE`` in CUDA graphs, and where what-if edits let it take no time."""
    nodes = graph.nodes
    call = nodes.launcher[activity - nodes.cpu]
    launches = np.bincount(nodes.launcher[nodes.launcher != NONE], minlength=nodes.cpu)
    takes_time = np.zeros(nodes.start_ns.size, dtype=np.bool_)
    takes_time[destinations(graph)[(graph.kind == EdgeKind.RUN) & (graph.lag_ns > 0)] // 2] = True
    return np.where((call != NONE) & (launches[call] == 1) & takes_time[call], call, NONE)


def of_host(graph: Graph, behind: Ints, cost_ns: int) -> str:
    """What such collectives cost the CPU, one sentence.

    Args:
        graph: The graph.
        behind: Activities that they follow.
        cost_ns: What one costs where a call of its own launches what it follows.
    """
    if (launched_by(graph, behind) == NONE).all():
        return "They run in CUDA graphs, or cost the CPU nothing, as what they follow"
    return f"Each costs the CPU {cost_ns / 1e3:.0f} µs; {OTHER_HOST}"


def in_line(graph: Graph, behind: Ints, cost_ns: int) -> Graph:
    """``graph`` with a collective behind each of some activities, for which what follows on the stream waits.

    Args:
        graph: The graph.
        behind: Activities, in order of launch.
        cost_ns: What a collective costs the CPU, where a call of its own launches what it follows.
    """
    nodes = graph.nodes
    call = launched_by(graph, behind)
    launched = call != NONE
    added = nodes.start_ns.size + np.arange(behind.size)
    host = slower_host(graph, call[:0], call[launched], cost_ns)
    grown = with_activities(host, np.full(behind.size, nodes.lane.max() + 1), nodes.end_ns[behind])
    following = beside(graph)[0][behind]
    awaited = following != NEVER
    edges = (
        (EdgeKind.PROGRAM, ends(call[launched]), starts(added[launched]), cost_ns),
        (EdgeKind.EVENT, ends(behind), starts(added), DEFAULT_LAG_NS),
        (EdgeKind.EVENT, ends(added[awaited]), starts(following[awaited]), DEFAULT_LAG_NS),
        (EdgeKind.STREAM, ends(added[:-1]), starts(added[1:]), DEFAULT_GAP_NS),
    )
    return with_edges(grown, *(Edges(kind, src, dst, np.full(src.size, lag_ns)) for kind, src, dst, lag_ns in edges))
