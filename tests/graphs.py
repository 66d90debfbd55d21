"""Graphs of traces made by hand, for tests; times in microseconds."""

import numpy as np

from tracekit.graph import Graph, build_graph
from tracekit.graph.edges import EdgeKind
from tracekit.replay.engine import Timeline, replay
from tracekit.rules import NO_RULES, RuleNames
from tracekit.testing import TraceBuilder
from tracekit.workload import steps
from tracekit.workload.kernel_table import build_kernel_table


def graph_of(builder: TraceBuilder, without: RuleNames = NO_RULES) -> Graph:
    trace = builder.load().rank()
    marks = steps.list_step_edges(steps.find_steps(trace, without))
    return build_graph(trace, build_kernel_table(trace, without=without), marks, without)


def play(graph: Graph, *durations: float) -> Timeline:
    """The graph replayed with kernels that take so long; with none, as long as measured."""
    return replay(graph, (np.array(durations) * 1000).astype(np.int64) if durations else None)


def edges(graph: Graph, kind: EdgeKind) -> int:
    return int((graph.kind == kind).sum())
