"""Graphs of traces made by hand, for tests; times in microseconds."""

import numpy as np

from tracekit.graph import Graph, link
from tracekit.graph.edges import EdgeKind
from tracekit.replay.engine import Timeline, replay
from tracekit.testing import TraceBuilder
from tracekit.workload import steps
from tracekit.workload.extract import extract


def graph_of(builder: TraceBuilder) -> Graph:
    trace = builder.load().rank()
    return link(trace, extract(trace), steps.marks(steps.find(trace)))


def play(graph: Graph, *durations: float) -> Timeline:
    """The graph replayed with kernels that take so long; with none, as long as measured."""
    return replay(graph, (np.array(durations) * 1000).astype(np.int64) if durations else None)


def edges(graph: Graph, kind: EdgeKind) -> int:
    return int((graph.kind == kind).sum())
