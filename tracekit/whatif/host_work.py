"""The host's own work in the graph: edges between consecutive calls of a thread, and within calls."""

from dataclasses import replace

import numpy as np

from tracekit.arrays import Bools, Floats
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations, compute_edge_sources
from tracekit.graph.recorded.host_spans import HostSpans
from tracekit.program import round_to_ns


def compute_fraction_within(graph: Graph, inside: HostSpans, calls: bool = False) -> Floats:
    """Compute for each edge the fraction of work between calls that was measured within spans; 0 for other edges.

    Args:
        graph: The graph.
        inside: The spans.
        calls: Whether to include the work within calls.
    """
    nodes = graph.nodes
    times = np.stack([nodes.start_ns, nodes.end_ns], axis=1).ravel()
    to = compute_edge_destinations(graph)
    edge = np.flatnonzero(
        (graph.kind == EdgeKind.PROGRAM) | (calls & (graph.kind == EdgeKind.RUN) & (to < 2 * nodes.n_host))
    )
    dst = to[edge]
    begin, end = times[compute_edge_sources(graph)[edge]], times[dst]
    share = np.zeros(graph.kind.size)
    share[edge] = inside.measure_covered_ns(nodes.lane[dst // 2], begin, end) / np.maximum(end - begin, 1)
    return share


def scale_lags(graph: Graph, factor: Floats) -> Graph:
    """Return the graph with every edge's lag multiplied by its own factor.

    Raises:
        WhatIfError: The lags add up to more than 30 years.
    """
    return replace(graph, lag_ns=round_to_ns(graph.lag_ns * factor, "CPU's own work"))


def find_edges_to_calls(graph: Graph, kind: EdgeKind, calls: Bools) -> Bools:
    """Mark the edges of one kind that lead to some CPU nodes.

    Args:
        graph: The graph.
        kind: Kind of edge.
        calls: Mask by CPU node.
    """
    nodes = np.zeros(graph.nodes.start_ns.size, dtype=np.bool_)
    nodes[: calls.size] = calls
    found: Bools = (graph.kind == kind) & nodes[compute_edge_destinations(graph) // 2]
    return found
