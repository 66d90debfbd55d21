"""Several replays in one pass give what each gives alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.test_properties as properties
from tests.graph.test_unrecorded_work import steps_with_lost_work
from tracekit.graph import Graph
from tracekit.ingest.ranks import combine_ranks
from tracekit.replay import engine
from tracekit.replay.engine import Replayer, ReplayTimes, Timeline, replay
from tracekit.run import prepare_run

FACTORS = st.lists(st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 1.0, 3.0])] * 3), min_size=1, max_size=9)


def replay_alone(graph: Graph, times: ReplayTimes) -> Timeline:
    lag_ns = graph.lag_ns.copy()
    lag_ns[graph.unrecorded_edges] = np.rint(lag_ns[graph.unrecorded_edges] * times.unrecorded_time)
    return replay(replace(graph, lag_ns=lag_ns), times.durations_ns, times.host_time)


def assert_alike(graph: Graph, factors: list[tuple[float, float, float]]) -> None:
    work_ns = graph.work_ns
    times = [ReplayTimes(np.rint(work_ns * gpu).astype(np.int64), host, rest) for gpu, host, rest in factors]
    count = 0
    for line, one in zip(Replayer(graph).replay(times), times, strict=True):
        alone = replay_alone(graph, one)
        assert (line.start_ns == alone.start_ns).all()
        assert (line.end_ns == alone.end_ns).all()
        count += 1
    assert count == len(factors)


@settings(max_examples=25, deadline=None)
@given(properties.many, FACTORS)
def test_together_as_alone(launches, factors):
    assert_alike(prepare_run(combine_ranks([properties.trace_of(launches)])).graph, factors)


@pytest.mark.parametrize("most_bytes", [0, 16 << 20], ids=["several passes", "one pass"])
def test_unrecorded_work_together_as_alone(monkeypatch, most_bytes):
    monkeypatch.setattr(engine, "MAX_TIMES_BYTES", most_bytes)
    graph = prepare_run(steps_with_lost_work().load()).graph
    assert graph.unrecorded_edges.size
    assert_alike(graph, [(gpu, host, gpu) for gpu in (1.0, 0.5, 1 / 3, 0.0) for host in (1.0, 0.3, 0.0)])


def test_halves_are_rounded_to_even():
    """As numpy rounds them: lags of 1, 3 and 5 ns at half the host's time are 0, 2 and 2."""
    graph = prepare_run(steps_with_lost_work().load()).graph
    lag_ns = graph.lag_ns.copy()
    lag_ns[graph.host_edges] = np.resize([1, 3, 5, 7], graph.host_edges.size)
    assert_alike(replace(graph, lag_ns=lag_ns), [(1.0, 0.5, 1.0), (1.0, 1.5, 1.0)])
