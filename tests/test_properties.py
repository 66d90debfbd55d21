"""Properties of the replay that hold for every trace."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.graph import Graph, build_graph
from tracekit.graph.edges import EdgeKind
from tracekit.replay.engine import replay
from tracekit.replay.step_time import StepTimer
from tracekit.testing import TraceBuilder
from tracekit.workload import steps as step_table
from tracekit.workload.kernel_table import build_kernel_table

LAUNCH = st.tuples(
    st.integers(1, 60),  # CPU work before the launch
    st.integers(1, 200),  # kernel
    st.sampled_from([7, 9]),  # stream
    st.booleans(),  # synchronise afterwards
)


def trace_of(launches, work=()):
    """A trace as a GPU would have run it: launch latency 8, gap 1, synchronisations that return 4 late.

    ``work`` of the CPU besides, as name, start and duration, may lie anywhere.
    """
    builder, now, free = TraceBuilder(), 0.0, {7: 0.0, 9: 0.0}
    for name, start, dur in work:
        (builder.call if name.startswith("cuda") else builder.annotation)(name, start, dur)
    for work, kernel, stream, sync in launches:
        now += work
        start = max(now + 8, free[stream] + 1)
        free[stream] = start + kernel
        builder.op("aten::op", now - 0.5, 6).kernel(f"k{kernel}", start, kernel, launch=now, stream=stream)
        now += 5.5
        if sync:
            end = max(now + 5, max(free.values()) + 4)
            builder.call("cudaDeviceSynchronize", now, end - now)
            now = end
    return builder.op("aten::last", now + 1, 2).load().rank()


def linked(launches) -> tuple[Graph, object]:
    trace = trace_of(launches)
    kernels = build_kernel_table(trace)
    return build_graph(trace, kernels, step_table.list_step_edges(step_table.find_steps(trace))), kernels


many = st.lists(LAUNCH, min_size=1, max_size=25)


@settings(max_examples=25, deadline=None)
@given(many)
def test_the_measured_run_comes_back(launches):
    graph, _ = linked(launches)
    assert replay(graph).end_ns.max() == pytest.approx(graph.nodes.end_ns.max(), rel=0.05, abs=20_000)


@settings(max_examples=25, deadline=None)
@given(many, st.integers(0, 24), st.integers(1, 1000))
def test_a_longer_kernel_makes_nothing_earlier(launches, which, longer):
    graph, kernels = linked(launches)
    durations = kernels["dur_ns"].to_numpy().copy()
    before = replay(graph, durations)
    durations[which % durations.size] += longer * 1000
    after = replay(graph, durations)
    assert (after.start_ns >= before.start_ns).all()
    assert (after.end_ns >= before.end_ns).all()


@settings(max_examples=25, deadline=None)
@given(many)
def test_every_edge_is_respected(launches):
    graph, _ = linked(launches)
    timeline = replay(graph)
    times = np.empty(graph.vertex.size, dtype=np.int64)
    times[graph.vertex] = np.stack([timeline.start_ns, timeline.end_ns], axis=1).ravel()
    dst = graph.dst
    assert (times[dst] >= times[graph.src] + graph.lag_ns).all()


@settings(max_examples=25, deadline=None)
@given(many, st.sampled_from([2, 3, 10]))
def test_everything_twice_as_slow_takes_twice_as_long(launches, factor):
    graph, kernels = linked(launches)
    slow = Graph(
        **{name: getattr(graph, name) for name in graph.__dataclass_fields__}
        | {"lag_ns": graph.lag_ns * factor, "release_ns": graph.release_ns * factor}
    )
    assert (replay(slow, kernels["dur_ns"].to_numpy() * factor).end_ns == replay(graph).end_ns * factor).all()


@settings(max_examples=25, deadline=None)
@given(many)
def test_activities_of_one_stream_keep_their_order(launches):
    graph, kernels = linked(launches)
    timeline = replay(graph, np.zeros(kernels.height, dtype=np.int64))
    for stream in (7, 9):
        on_stream = (kernels["stream"] == stream).to_numpy()
        starts = timeline.activity_start_ns[on_stream]
        assert (np.diff(starts) >= 0).all()


@settings(max_examples=25, deadline=None)
@given(many)
def test_busy_and_idle_add_up_to_the_step(launches):
    graph, kernels = linked(launches)
    steps = step_table.find_steps(trace_of(launches))
    kernels, steps = (table.with_columns(rank=0) for table in (kernels, steps))
    step = StepTimer(kernels, steps, steps).compute_median(replay(graph))
    assert step.kernel_time_us + step.idle_us == pytest.approx(step.step_time_us)
    assert step.kernel_time_us <= kernels["dur_ns"].sum() / 1e3 + 1e-6


@settings(max_examples=20, deadline=None)
@given(many, st.randoms(use_true_random=False))
def test_the_order_of_events_in_the_file_changes_nothing(launches, random):
    builder = TraceBuilder()
    now = 0.0
    for work, kernel, stream, _ in launches:
        builder.op("aten::op", now, 6).kernel("k", now + 300 * kernel, kernel, launch=now + 1, stream=stream)
        now += work + 6
    trace = builder.load().rank()
    random.shuffle(builder.events)
    shuffled = builder.load().rank()
    marks = step_table.list_step_edges(step_table.find_steps(trace))
    first, second = (replay(build_graph(t, build_kernel_table(t), marks)) for t in (trace, shuffled))
    assert (first.end_ns == second.end_ns).all()


def test_recorded_edges_outnumber_inferred_ones():
    graph, _ = linked([(10, 50, 7, False)] * 20)
    assert (graph.kind == EdgeKind.STREAM).sum() == 19
    assert graph.dropped == 0
