"""A GPU that stands still although work was launched; microseconds."""

import tracekit as tk
from tests.graphs import graph_of, play
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.testing import TraceBuilder


def stalled(launch_dur: float = 5, other_until: float = 14) -> TraceBuilder:
    """The kernel that was launched at 30 starts at 2514, when nothing had run since 14 or what is asked for."""
    builder = TraceBuilder().step(1, 0, 2600).kernel("first", 4, 2, launch=0)
    builder.kernel("other", 14, other_until - 14, launch=10, stream=9)
    return builder.kernel("late", 2514, 10, launch=30, launch_dur=launch_dur)


def start_of_last(graph: Graph, *durations: float) -> float:
    timeline = play(graph, *durations)
    return float(timeline.activity_start_ns[-1]) / 1000


def test_a_stall_begins_when_the_launch_call_returns_and_is_kept():
    graph = graph_of(stalled())
    assert graph.waits.stalled_ns.sum() == (2514 - 35) * 1000
    assert start_of_last(graph) == 2514
    assert start_of_last(graph, 0, 0, 0) == 2514


def test_a_stall_begins_once_the_gpu_has_nothing_to_do():
    graph = graph_of(stalled(other_until=200))
    assert graph.waits.stalled_ns.sum() == (2514 - 200) * 1000
    assert start_of_last(graph, 2, 486, 10) == 2814


def test_a_launch_call_that_takes_long_is_no_stall():
    assert graph_of(stalled(launch_dur=2480)).waits.stalled_ns.sum() == 0


def test_no_stall_while_another_stream_worked_for_a_part_of_it():
    graph = graph_of(stalled(other_until=1500))
    assert graph.waits.stalled_ns.sum() == 0
    assert not (graph.kind == EdgeKind.STALL).any()


def test_the_output_says_how_much_is_kept():
    [said] = [line for line in tk.report(stalled().load()).warnings if line.code == "gpu-stalled"]
    assert str(said).startswith("For 95 % of the step")
