"""One thread launches steps ahead, another waits for their results, as in serving engines; microseconds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import graphs
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.inferred import host_pauses as handovers
from tracekit.replay.engine import replay
from tracekit.testing import TraceBuilder

STEPS, STEP = 8, 900.0
LAUNCHER, WAITER = 1, 2


def engine(paused: float = 150) -> Graph:
    """A step is launched 150 after the waiter returned from the step before last; it waits for the next one at once.

    Args:
        paused: How long the launcher takes from one launch to its next pause.
    """
    builder, done = TraceBuilder(), 0.0
    for i in range(STEPS):
        launched = 200.0 * i if i < 2 else done - STEP + 180
        builder.op("execute_model", launched, paused, thread=LAUNCHER)
        start = max(launched + 10, done)
        builder.kernel("decode", start, STEP, launch=launched, thread=LAUNCHER)
        if i:
            builder.call("cudaEventSynchronize", max(launched, 60), done + 5 - max(launched, 60), thread=WAITER)
        done = start + STEP
    return graphs.graph_of(builder)


def length(graph: Graph, kernel: float) -> float:
    timeline = replay(graph, np.full(graph.nodes.activities.size, round(1000 * kernel)))
    return float(timeline.activity_end_ns.max()) / 1000


def test_the_launcher_waits_for_the_thread_that_waits_for_the_gpu():
    graph = engine()
    assert length(graph, STEP) == pytest.approx(STEPS * STEP, rel=0.01)
    assert length(graph, STEP / 2) == pytest.approx(STEPS * STEP / 2, rel=0.1)


def test_a_launcher_that_does_not_pause_keeps_its_own_pace():
    graph = engine(paused=STEP - 20)
    assert graphs.edges(graph, EdgeKind.HANDOVER) == 0
    assert length(graph, STEP / 2) > 0.8 * length(graph, STEP)


BUSY = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(1, 4)), min_size=1, max_size=30)


def bursts(busy: list[tuple[int, int, int]]) -> handovers._Bursts:
    """The bursts of threads that are busy from a time on for some time, in units of the shortest pause."""
    ends: dict[int, int] = {}
    rows = []
    for lane, start, length in sorted(busy):
        if start >= ends.get(lane, 0):
            rows.append((lane, start, start + length))
            ends[lane] = start + length
    lane, start, end = np.array(rows).T
    return handovers._find_bursts(lane, start * (handovers.MIN_QUIET_NS + 1), end * (handovers.MIN_QUIET_NS + 1))


@given(BUSY, BUSY)
def test_the_giver_is_the_last_burst_of_another_thread_within_the_pause(mine, theirs):
    receivers, givers = bursts(mine), bursts(theirs)
    lanes, ends = handovers._find_givers(receivers, givers)
    for row in range(receivers.lane.size):
        pause = receivers.quiet_since_ns[row], receivers.start_ns[row]
        inside = [
            (int(end), -int(lane))
            for lane, start, end in zip(givers.lane, givers.start_ns, givers.end_ns, strict=True)
            if lane != receivers.lane[row] and start >= pause[0] and end <= pause[1]
        ]
        expected = max(inside, default=None)
        assert (None if lanes[row] < 0 else (int(ends[row]), -int(lanes[row]))) == expected
