"""The CPU's own work, as the graph holds it: on the edges between consecutive calls of a thread, and within calls."""

from dataclasses import replace

import numpy as np

from tracekit.arrays import Bools, Floats
from tracekit.graph import Graph
from tracekit.graph.change import destinations, sources
from tracekit.graph.edges import EdgeKind
from tracekit.graph.spans import Spans
from tracekit.replay.run import whole_ns


def share_within(graph: Graph, inside: Spans, calls: bool = False) -> Floats:
    """How much of the work between two calls was measured within spans, by edge; 0 for edges of other kinds.

    Args:
        graph: The graph.
        inside: The spans.
        calls: Of calls too.
    """
    nodes = graph.nodes
    times = np.stack([nodes.start_ns, nodes.end_ns], axis=1).ravel()
    to = destinations(graph)
    edge = np.flatnonzero(
        (graph.kind == EdgeKind.PROGRAM) | (calls & (graph.kind == EdgeKind.RUN) & (to < 2 * nodes.cpu))
    )
    dst = to[edge]
    begin, end = times[sources(graph)[edge]], times[dst]
    share = np.zeros(graph.kind.size)
    share[edge] = inside.covered_ns(nodes.lane[dst // 2], begin, end) / np.maximum(end - begin, 1)
    return share


def times_factor(graph: Graph, factor: Floats) -> Graph:
    """``graph`` with every edge's lag multiplied by a factor of its own.

    Raises:
        WhatIfError: They become longer than anybody can mean.
    """
    return replace(graph, lag_ns=whole_ns(graph.lag_ns * factor, "CPU's own work"))


def of_calls(graph: Graph, kind: EdgeKind, calls: Bools) -> Bools:
    """Edges of a kind that lead to certain CPU nodes.

    Args:
        graph: The graph.
        kind: Kind of edge.
        calls: By CPU node.
    """
    nodes = np.zeros(graph.nodes.start_ns.size, dtype=np.bool_)
    nodes[: calls.size] = calls
    found: Bools = (graph.kind == kind) & nodes[destinations(graph) // 2]
    return found
