"""Speed, as ratios to a peer measured in the same run; `make bench` prints the figures."""

import networkx as nx
import numpy as np
import pytest

from predictors import list_gpus
from tests.asking import predict
from tests.benchmarks.conftest import LAUNCHES
from tests.benchmarks.timing import best
from tracekit.graph import Graph, build_graph
from tracekit.ingest import load_bytes
from tracekit.replay.engine import replay
from tracekit.run import prepare_run
from tracekit.workload import steps
from tracekit.workload.kernel_table import build_kernel_table


@pytest.fixture(scope="module")
def graph(text: bytes) -> Graph:
    trace = load_bytes(text, "benchmark").rank()
    return build_graph(trace, build_kernel_table(trace), steps.list_step_edges(steps.find_steps(trace)))


def python_pass(graph: Graph) -> list[int]:
    """The same longest path in plain Python."""
    first, src, lag = graph.first.tolist(), graph.src.tolist(), graph.lag_ns.tolist()
    times = graph.release_ns.tolist()
    for vertex in range(len(times)):
        for edge in range(first[vertex], first[vertex + 1]):
            times[vertex] = max(times[vertex], times[src[edge]] + lag[edge])
    return times


def test_replay_against_plain_python(benchmark, graph):
    """The compiled pass gives the same times, at least twenty times sooner."""
    timeline = replay(graph)
    expected = np.array(python_pass(graph))[graph.vertex]
    assert (timeline.start_ns == expected[0::2]).all()
    assert (timeline.end_ns == expected[1::2]).all()
    benchmark(replay, graph)
    ratio = best(lambda: python_pass(graph)) / best(lambda: replay(graph))
    benchmark.extra_info["million vertices a second"] = graph.vertex.size / 1e6 / best(lambda: replay(graph))
    benchmark.extra_info["times plain Python"] = ratio
    assert ratio > 20


def networkx_graph(graph: Graph) -> nx.DiGraph:
    """The same graph for networkx, with an edge to every vertex from the beginning of the trace."""
    dst = graph.dst
    other = nx.DiGraph()
    other.add_weighted_edges_from((-1, vertex, lag) for vertex, lag in enumerate(graph.release_ns.tolist()))
    other.add_weighted_edges_from(zip(graph.src.tolist(), dst.tolist(), graph.lag_ns.tolist(), strict=True))
    return other


def test_replay_against_networkx(benchmark, graph):
    """The pass finds the same longest path as networkx, a hundred times sooner, at 20 million nodes a second."""
    other = networkx_graph(graph)
    timeline = replay(graph)
    assert nx.dag_longest_path_length(other) == timeline.end_ns.max()
    benchmark(replay, graph)
    replayed = best(lambda: replay(graph))
    ratio = best(lambda: nx.dag_longest_path_length(other), repeats=1) / replayed
    nodes = graph.nodes.start_ns.size / 1e6 / replayed
    benchmark.extra_info["times networkx"] = ratio
    benchmark.extra_info["million nodes a second"] = nodes
    assert ratio > 100
    assert nodes > 20


def test_thirty_gpus_share_what_the_trace_tells(benchmark, text):
    """A prediction of 20,000 kernels on 30 GPUs, in less than 2 s; each GPU more takes a fraction of the first."""
    run = prepare_run(load_bytes(text, "benchmark"))
    gpus = list_gpus()[:30]
    predict(run, gpus)
    benchmark.pedantic(predict, (run, gpus), rounds=1)
    one, thirty = best(lambda: predict(run, gpus[:1])), best(lambda: predict(run, gpus))
    another = (thirty - one) / (len(gpus) - 1)
    benchmark.extra_info["seconds for 30 GPUs"] = thirty
    benchmark.extra_info["times one GPU"] = thirty / one
    benchmark.extra_info["million kernels a second"] = LAUNCHES / 1e6 / another
    assert thirty < 2
    assert another < 0.7 * one
