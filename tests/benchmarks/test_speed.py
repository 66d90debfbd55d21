"""Speed, as ratios to a peer measured in the same run; `make bench` prints the figures."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from tracekit.graph import Graph, link
from tracekit.ingest import load_bytes
from tracekit.replay.engine import replay
from tracekit.testing import TraceBuilder
from tracekit.workload import steps
from tracekit.workload.extract import extract

LAUNCHES = 20_000


@pytest.fixture(scope="module")
def text() -> bytes:
    """A trace of 60,000 events, 12 MB."""
    builder = TraceBuilder()
    for i in range(LAUNCHES):
        dims = [[i % 50 + 1, 1024], [1024, 1024]]
        builder.op("aten::mm", 10 * i, 9, dims=dims, types=["float", "float"], concrete=["", ""])
        builder.kernel("ampere_sgemm_128x64_nn", 10 * i + 20, 8, launch=10 * i + 2, grid=[8, 4, 1], block=[128, 1, 1])
    return builder.to_json()


@pytest.fixture(scope="module")
def graph(text: bytes) -> Graph:
    trace = load_bytes(text, "benchmark").rank()
    return link(trace, extract(trace), steps.marks(steps.find(trace)))


def best(function: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of the fastest of a few runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


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
