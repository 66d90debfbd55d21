"""Threads that launch steps ahead and pause until an earlier one is done; microseconds."""

import itertools

import numpy as np
import pytest

from tests import graphs
from tracekit.graph import Graph
from tracekit.replay.engine import replay
from tracekit.testing import TraceBuilder

STEPS, STEP = 8, 10_000.0


def graph_of(resumed: list[float], kernel: float = STEP) -> Graph:
    """Steps of one kernel, which follow each other on the GPU, each launched 30 after its thread goes on."""
    builder, free = TraceBuilder(), 0.0
    for at in resumed:
        builder.op("vllm::prepare", at, 20)
        started = max(free + 1, at + 40)
        builder.kernel("step", started, kernel, launch=at + 30)
        free = started + kernel
    return graphs.graph_of(builder)


def behind(*late: float) -> list[float]:
    """When a thread goes on that launches two steps, and then one after the end of each."""
    return [0, 3000, *(40 + STEP + i * (STEP + 1) + by for i, by in enumerate(late))]


def length(graph: Graph, kernel: float) -> float:
    timeline = replay(graph, np.full(graph.nodes.activities.size, round(1000 * kernel)))
    return float(timeline.activity_end_ns.max()) / 1000


def test_a_host_that_goes_on_after_the_step_before_last_waited_for_it():
    graph = graph_of(behind(800, 850, 750, 900, 800, 700))
    assert graph.inferred_waits == 6
    assert length(graph, STEP) == pytest.approx(40 + STEPS * (STEP + 1), abs=10)
    assert length(graph, STEP) - length(graph, STEP / 2) == pytest.approx(STEPS * STEP / 2, abs=20)


def test_a_host_that_goes_on_whenever_it_likes_did_not():
    assert graph_of(behind(800, 3000, 1500, 6000, 300, 4500)).inferred_waits == 0
    assert graph_of(behind(200, 1900, 900, 100, 1500, 600)).inferred_waits == 0


def test_a_gpu_that_has_nothing_left_keeps_in_step_with_the_host():
    """The thread goes on 800 after each step, when no other was launched: as likely the GPU waited for it."""
    resumed = list(itertools.accumulate([STEP + 840.0] * (STEPS - 1), initial=0.0))
    assert graph_of(resumed).inferred_waits == 0


def test_two_such_pauses_are_too_few():
    assert graph_of(behind(800, 850)).inferred_waits == 0
