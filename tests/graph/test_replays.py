"""CUDA graphs replayed several times, on small traces; times in microseconds."""

import numpy as np

from tests.graphs import graph_of
from tracekit.graph import Graph
from tracekit.replay.engine import replay
from tracekit.testing import TraceBuilder


def replays(*pauses: float) -> TraceBuilder:
    """Graphs of two kernels of 10 with a pause between them, all launched at once; 3 from replay to replay."""
    builder, now = TraceBuilder(), 200.0
    for i, pause in enumerate(pauses):
        builder.kernel("first", now, 10, launch=10 * i, call="cudaGraphLaunch")
        builder.kernel("second", now + 10 + pause, 10)
        builder.events[-1]["args"]["correlation"] = builder.events[-2]["args"]["correlation"]
        now += 23 + pause
    return builder


def pauses_in(graph: Graph) -> list[float]:
    timeline = replay(graph)
    found: list[float] = ((timeline.activity_start_ns[1::2] - timeline.activity_end_ns[0::2]) / 1000).tolist()
    return found


def test_what_all_replays_agree_on_belongs_to_the_graph():
    graph = graph_of(replays(100, 102, 98, 101))
    assert pauses_in(graph)[1:] == [100.5] * 3
    assert graph.waits.hidden_ns.sum() >= 3 * 100_500


def test_what_they_disagree_on_does_not():
    graph = graph_of(replays(100, 500, 40, 900))
    assert graph.waits.hidden_ns.sum() == 0
    assert max(pauses_in(graph)) < 20


def test_two_replays_are_too_few():
    assert graph_of(replays(100, 100)).waits.hidden_ns.sum() == 0


def test_a_longer_gap_that_comes_back_stays_where_it_is():
    """Five kernels of 10 in each of four graphs, 1 apart but for 4 before the third."""
    builder, now = TraceBuilder(), 200.0
    for i in range(4):
        for place, gap in enumerate((3, 1, 4, 1, 1)):
            now += gap
            builder.kernel(f"kernel {place}", now, 10, launch=None if place else 10 * i, call="cudaGraphLaunch")
            if place:
                builder.events[-1]["args"]["correlation"] = builder.events[-2]["args"]["correlation"]
            now += 10
    timeline = replay(graph_of(builder))
    gaps = (timeline.activity_start_ns[1:] - timeline.activity_end_ns[:-1]) / 1000
    assert gaps.tolist()[5:] == [1, 4, 1, 1, 3, 1, 4, 1, 1, 3, 1, 4, 1, 1]


def branches(*side: float, pause: float = 100, long: float = 10) -> TraceBuilder:
    """Graphs of two kernels with a pause between them, and of another on a side branch at the places asked for."""
    builder, now = TraceBuilder(), 200.0
    for i, place in enumerate(side):
        builder.kernel("first", now, 10, launch=10 * i, call="cudaGraphLaunch")
        builder.kernel("second", now + 10 + pause, 10).kernel("side", now + place, long, stream=9)
        for event in builder.events[-2:]:
            event["args"]["correlation"] = builder.events[-3]["args"]["correlation"]
        now += 23 + pause
    return builder


def test_branches_that_interleave_differently_are_one_graph():
    assert graph_of(branches(5, -5, 5, 112)).waits.hidden_ns.sum() >= 300_000


def test_what_another_branch_worked_meanwhile_is_no_time_of_the_graphs_own():
    """The side kernel runs from 12 to 108 of a pause from 10 to 110: the second kernel waits for it."""
    graph = graph_of(branches(*[12] * 4, long=96))
    assert graph.waits.hidden_ns.sum() == 0
    durations = np.where(graph.nodes.dur_ns[graph.nodes.n_host :] == 96_000, 48_000, 10_000)
    assert replay(graph).end_ns.max() - replay(graph, durations).end_ns.max() > 3 * 45_000


def test_pauses_of_ordinary_launches_are_not_taken_over():
    builder = TraceBuilder()
    for i in range(6):
        builder.kernel("gemm", 10 + 200 * i, 100, launch=i)
    assert graph_of(builder).waits.hidden_ns.sum() == 0


def test_hidden_work_stays_as_it_is_on_another_gpu():
    graph = graph_of(replays(100, 100, 100, 100))
    instant = replay(graph, np.zeros(8, dtype=np.int64))
    assert instant.end_ns.max() > 300_000
