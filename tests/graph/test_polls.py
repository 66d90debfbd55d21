"""Host code that reads memory until a kernel has written it; microseconds."""

import pytest

from tests import graphs
from tracekit.graph import Graph
from tracekit.testing import TraceBuilder

NOTIFY = "void deep_ep::internode::notify_dispatch<false, 8>(int const*, int*, int, int const*)"


def graph_of(name: str, resumed: float = 1000) -> Graph:
    """A kernel runs from 14 to 1034; its thread goes on with an op when asked, and launches the next 20 later."""
    builder = TraceBuilder().kernel(name, 14, 1020, launch=10).op("aten::empty", resumed, 30)
    return graphs.graph_of(builder.kernel("dispatch", resumed + 24, 100, launch=resumed + 20, stream=9))


def second_start(graph: Graph, *durations: float) -> float:
    timeline = graphs.play(graph, *durations)
    return float(timeline.activity_start_ns[-1] - timeline.activity_start_ns[0]) / 1000


def test_the_host_goes_on_when_the_kernel_has_counted():
    graph = graph_of(NOTIFY)
    assert second_start(graph) == pytest.approx(1026, abs=20)
    assert second_start(graph) - second_start(graph, 520, 100) == 500
    assert graph.waits.derived_ns.sum() == 985_000


def test_pauses_after_other_kernels_are_work_of_the_host():
    graph = graph_of("void deep_ep::internode::combine<false, 8>(int4*, float*)")
    assert second_start(graph, 520, 100) == second_start(graph)
    assert graph.waits.derived_ns.sum() == 0


def test_a_host_that_goes_on_long_before_does_not_wait():
    assert graph_of(NOTIFY, resumed=500).waits.derived_ns.sum() == 0
    assert graph_of(NOTIFY, resumed=5000).waits.derived_ns.sum() == 0
