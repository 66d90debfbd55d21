"""Idle time whose causes can be worked out by hand; times in microseconds."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_properties import many, trace_of
from tracekit.analysis import idle as idle_module
from tracekit.analysis.idle import IdleBreakdown, attribute_idle_time, attribute_stream_idle_time
from tracekit.analysis.idle_causes import IdleCause
from tracekit.ingest.ranks import combine_ranks
from tracekit.replay.engine import build_measured_timeline, replay
from tracekit.replay.step_time import StepTimer
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import RankTrace
from tracekit.workload.kernel_table import build_kernel_table


def run_of(trace: RankTrace) -> MeasuredRun:
    return prepare_run(combine_ranks([trace]))


def idle_of(builder: TraceBuilder, *without_rules: str) -> IdleBreakdown:
    run = prepare_run(builder.load(), without_rules=without_rules)
    return attribute_idle_time(run.program, build_measured_timeline(run.graph))


def causes(idle: IdleBreakdown) -> dict[str, float]:
    return dict(idle.sum_by_cause().select("cause", "time_us").iter_rows())


def test_a_slow_cpu():
    """Launches 100 apart, kernels of 10 that start 8 later: 92 of 100 the CPU takes its time."""
    builder = TraceBuilder()
    for start in (0, 100, 200):
        builder.op("aten::add", start, 20).kernel("add", start + 8, 10, launch=start)
    idle = idle_of(builder)
    # Before the first kernel 8 of latency; then twice 82 of CPU and 8 of latency; the op ends 2 after the last kernel.
    assert causes(idle) == {IdleCause.LAUNCH_BOUND: 2 * 82 + 2, IdleCause.LAUNCH_LATENCY: 3 * 8}


def test_a_slow_launch_call_is_the_cpus_work():
    """The first launch of a kernel loads its code: 9000 in the call, at whose end the kernel starts."""
    builder = TraceBuilder().op("aten::mm", 0, 20).kernel("gemm", 10, 10, launch=2)
    builder.op("aten::gelu", 30, 9100).kernel("gelu", 9095, 10, launch=100, launch_dur=9000).op("end", 9130, 10)
    assert causes(idle_of(builder))[IdleCause.LAUNCH_BOUND] > 9000
    assert IdleCause.UNEXPLAINED not in causes(idle_of(builder))


def test_it_is_told_which_op_launched_late():
    builder = TraceBuilder()
    for start, name in ((0, "aten::add"), (100, "aten::mm"), (130, "aten::add")):
        builder.op(name, start, 6).kernel(name, start + 8, 10, launch=start)
    by_op = idle_of(builder).sum_by_op(build_kernel_table(builder.load().rank()))
    assert dict(by_op.select("op", "time_us").iter_rows()) == {"aten::mm": 82, "aten::add": 12}


def after_a_sync(cpu: float) -> TraceBuilder:
    """A kernel from 10 to 110, a synchronisation from 20 to 114, and a launch ``cpu`` later."""
    return (
        TraceBuilder()
        .op("aten::mm", 0, 8)
        .kernel("gemm", 10, 100, launch=0)
        .call("cudaDeviceSynchronize", 20, 94)
        .op("aten::add", 114 + cpu, 20)
        .kernel("add", 114 + cpu + 10, 30, launch=114 + cpu)
    )


def test_a_synchronisation_is_to_blame_for_what_it_kept_the_cpu_from():
    found = causes(idle_of(after_a_sync(50)))
    assert found == {IdleCause.LAUNCH_LATENCY: 10 + 10, IdleCause.SYNC_BOUND: 4 + 50}


def test_but_for_no_more_than_it_waited():
    found = causes(idle_of(after_a_sync(500)))
    # It waited 84 of its 94: a call that always waits is taken to cost 10.
    assert found == {IdleCause.LAUNCH_LATENCY: 20, IdleCause.SYNC_BOUND: 84, IdleCause.LAUNCH_BOUND: 4 + 500 - 84}


def test_queued_kernels_leave_a_gap():
    builder = TraceBuilder()
    for i in range(8):
        builder.kernel("gemm", 10 + 102 * i, 100, launch=6 * i)
    assert causes(idle_of(builder)) == {IdleCause.KERNEL_GAP: 7 * 2, IdleCause.LAUNCH_LATENCY: 10}


def test_another_streams_event():
    builder = TraceBuilder().kernel("gemm", 10, 500, launch=0).kernel("nccl", 512, 100, launch=20, stream=9)
    assert causes(idle_of(builder)) == {IdleCause.LAUNCH_LATENCY: 10, IdleCause.DEPENDENCY: 2}


def test_what_nothing_explains_is_said_so():
    """Two kernels launched at once on one stream; the second one comes 1000 late."""
    builder = TraceBuilder().kernel("a", 8, 10, launch=0).kernel("b", 1018, 10, launch=6)
    found = causes(idle_of(builder))
    assert found[IdleCause.UNEXPLAINED] == pytest.approx(1000, abs=5)


def test_steps_are_apart():
    builder = TraceBuilder().step(0, 0, 100).step(1, 100, 100).step(2, 200, 100)
    for start in (10, 60, 110, 160, 210, 260):
        builder.op("aten::add", start, 20).kernel("add", start + 10, 20, launch=start)
    idle = idle_of(builder)
    assert idle.steps["idle_ns"].to_list() == [60_000, 60_000]
    assert idle.segments.group_by("step").agg(pl.col("time_ns").sum()).sort("step")["time_ns"].to_list() == [60_000] * 2


def before_the_second_launch(builder: TraceBuilder) -> TraceBuilder:
    """Kernels from 8 to 18 and from 208 to 218, launched at 0 and 200, each by a call of 5."""
    return (
        builder.op("aten::mm", 0, 8)
        .kernel("gemm", 8, 10, launch=0)
        .op("aten::add", 200, 18)
        .kernel("add", 208, 10, launch=200)
    )


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaHostAlloc", "hipMalloc", "hipHostMalloc", "cuMemCreate"])
def test_memory_that_the_cpu_had_to_get(name):
    found = causes(idle_of(before_the_second_launch(TraceBuilder().call(name, 60, 90))))
    assert found == {IdleCause.ALLOCATOR: 90, IdleCause.LAUNCH_BOUND: 200 - 18 - 90, IdleCause.LAUNCH_LATENCY: 16}


def test_only_what_of_a_call_lies_in_the_idle_time_counts():
    found = causes(idle_of(before_the_second_launch(TraceBuilder().call("cudaMalloc", 10, 90))))
    assert found == {IdleCause.ALLOCATOR: 100 - 18, IdleCause.LAUNCH_BOUND: 100, IdleCause.LAUNCH_LATENCY: 16}


def test_freeing_waits_for_the_gpu_and_takes_its_time():
    builder = TraceBuilder()
    for i in range(3):
        builder.op("aten::mm", 200 * i, 8).kernel("gemm", 200 * i + 8, 10, launch=200 * i)
        builder.call("cudaFree", 200 * i + 30, 100)
    found = causes(idle_of(builder))
    # The kernels ended before the calls, which took their 100 each; after the last one nothing is left to do.
    assert found == {
        IdleCause.ALLOCATOR: 300,
        IdleCause.LAUNCH_BOUND: 2 * (200 - 18 - 100) + 12,
        IdleCause.LAUNCH_LATENCY: 24,
    }


@pytest.mark.parametrize("loader", ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"])
def test_a_batch_that_was_waited_for(loader):
    found = causes(idle_of(before_the_second_launch(TraceBuilder().annotation(loader, 50, 120))))
    assert found == {IdleCause.DATA_LOADING: 120, IdleCause.LAUNCH_BOUND: 200 - 18 - 120, IdleCause.LAUNCH_LATENCY: 16}


def test_memory_that_a_data_loader_gets_counts_once():
    builder = TraceBuilder().annotation("enumerate(DataLoader)#Iter.__next__", 50, 120).call("cudaHostAlloc", 60, 30)
    found = causes(idle_of(before_the_second_launch(builder)))
    assert found == {
        IdleCause.ALLOCATOR: 30, IdleCause.DATA_LOADING: 90, IdleCause.LAUNCH_BOUND: 200 - 18 - 120,
        IdleCause.LAUNCH_LATENCY: 16
    }  # fmt: skip


def test_memory_on_a_thread_that_launches_nothing_holds_nothing_up():
    found = causes(idle_of(before_the_second_launch(TraceBuilder().call("cudaMalloc", 60, 90, thread=77))))
    assert found == {IdleCause.LAUNCH_BOUND: 200 - 18, IdleCause.LAUNCH_LATENCY: 16}


def test_a_batch_after_a_synchronisation():
    """The wait for the batch is told first; the synchronisation is to blame for the rest of what followed it."""
    builder = after_a_sync(50).annotation("enumerate(DataLoader)#Iter.__next__", 124, 30)
    assert causes(idle_of(builder)) == {
        IdleCause.LAUNCH_LATENCY: 20,
        IdleCause.SYNC_BOUND: 4 + 20,
        IdleCause.DATA_LOADING: 30,
    }


def test_a_slower_host_takes_longer_for_all_of_it():
    run = prepare_run(before_the_second_launch(TraceBuilder().call("cudaMalloc", 60, 90)).load())
    twice = attribute_idle_time(run.program, replay(run.graph, host_time=2.0))
    assert causes(twice)[IdleCause.ALLOCATOR] == 2 * 90


def union_ns(start: np.ndarray, end: np.ndarray) -> int:
    """Length of the union of intervals."""
    order = np.argsort(start)
    reached = np.maximum.accumulate(end[order])
    gaps = np.maximum(start[order][1:] - reached[:-1], 0)
    return int(reached[-1] - start.min() - gaps.sum())


WORK = st.sampled_from(["cudaMalloc", "cudaFree", "enumerate(DataLoader)#Iter.__next__"])


@settings(max_examples=25, deadline=None)
@given(
    many,
    st.sampled_from([0, 0.5, 1, 3]),
    st.sampled_from([0, 0.5, 1]),
    st.lists(st.tuples(WORK, st.integers(0, 3000), st.integers(1, 500)), max_size=5),
)
def test_causes_add_up_to_the_idle_time(launches, gpu, host, work):
    run = run_of(trace_of(launches, work))
    kernels = run.kernels
    durations = (kernels["dur_ns"] * gpu).cast(pl.Int64).to_numpy()
    for timeline in (build_measured_timeline(run.graph), replay(run.graph, durations, host)):
        idle = attribute_idle_time(run.program, timeline)
        assert (idle.segments["time_ns"] > 0).all()
        assert idle.segments["time_ns"].sum() == idle.steps["idle_ns"].sum()
        start, end = timeline.activity_start_ns, timeline.activity_end_ns
        table = StepTimer(kernels, run.steps, run.steps).tabulate(timeline)
        assert table["busy_ns"].sum() == union_ns(start, end)
        assert idle.steps["idle_ns"].sum() == table["time_ns"].sum() - union_ns(start, end)
        each = attribute_stream_idle_time(run.program, timeline)[1]
        told = each.segments.group_by("device", "stream", "step").agg(told_ns=pl.col("time_ns").sum())
        rows = each.steps.join(told, on=["device", "stream", "step"], how="left").fill_null(0)
        assert (each.segments["time_ns"] > 0).all()
        assert (rows["told_ns"] == rows["idle_ns"]).all()
        stream = kernels["stream"].to_numpy()
        busy = {number: union_ns(start[stream == number], end[stream == number]) for number in np.unique(stream)}
        by_stream = each.steps.group_by("stream").agg(pl.col("busy_ns").sum())
        assert dict(by_stream.iter_rows()) == busy


@settings(max_examples=20, deadline=None)
@given(many)
def test_a_replay_explains_all_but_what_began_before_the_trace(launches):
    run = run_of(trace_of(launches))
    idle = attribute_idle_time(run.program, replay(run.graph))
    released = np.count_nonzero(run.graph.release_ns) > 0
    assert released or IdleCause.UNEXPLAINED not in causes(idle)


def test_pauses_that_every_replay_of_a_graph_has():
    builder = TraceBuilder()
    for i in range(4):
        builder.kernel("first", 200 + 150 * i, 10, launch=10 * i, call="cudaGraphLaunch")
        builder.kernel("second", 320 + 150 * i, 10)
        builder.events[-1]["args"]["correlation"] = builder.events[-2]["args"]["correlation"]
    found = causes(idle_of(builder, "graph-launch-steps"))
    assert found[IdleCause.IN_GRAPH] == 4 * 110


def streams_of(builder: TraceBuilder) -> dict[int, dict[str, float]]:
    """Per stream its causes, and what it worked as ``busy``."""
    run = prepare_run(builder.load())
    table = attribute_stream_idle_time(run.program, build_measured_timeline(run.graph))[1].sum_by_stream()
    found: dict[int, dict[str, float]] = {}
    for row in table.iter_rows(named=True):
        found.setdefault(row["stream"], {"busy": row["busy_us"]})[row["cause"]] = row["time_us"]
    return found


def test_a_stream_that_waits_for_another_one():
    """The second kernel was launched at 20, but waited for the first one, from 8 to 108, and 2 more."""
    builder = TraceBuilder().kernel("first", 8, 100, launch=0, stream=7).kernel("second", 110, 50, launch=20, stream=9)
    assert streams_of(builder) == {
        7: {"busy": 100, IdleCause.LAUNCH_LATENCY: 8, IdleCause.NOTHING_LAUNCHED: 52},
        9: {"busy": 50, IdleCause.WAITS_FOR_COMPUTE: 100, IdleCause.LAUNCH_LATENCY: 8, IdleCause.DEPENDENCY: 2},
    }


def test_a_copy_that_another_stream_waits_for():
    builder = TraceBuilder().kernel("Memcpy HtoD", 8, 100, launch=0, stream=7, kind="gpu_memcpy")
    found = streams_of(builder.kernel("second", 110, 50, launch=20, stream=9))
    assert found[9][IdleCause.WAITS_FOR_COPY] == 100


def test_a_stream_whose_launch_comes_after_the_cpu_waited_for_another_one():
    """All that the CPU waited lies in the stream's idle time already: the 8 of its work afterwards are its own."""
    builder = TraceBuilder().kernel("first", 8, 100, launch=0, stream=7).call("cudaDeviceSynchronize", 20, 92)
    found = streams_of(builder.kernel("second", 128, 50, launch=120, stream=9))
    assert found[9] == {
        "busy": 50,
        IdleCause.SYNC_BOUND: 100 + 4,
        IdleCause.LAUNCH_BOUND: 8,
        IdleCause.LAUNCH_LATENCY: 16,
    }


@settings(max_examples=10, deadline=None)
@given(many, st.integers(1, 9))
def test_causes_are_the_same_however_few_segments_are_classified_at_once(launches, most):
    run = run_of(trace_of(launches, []))
    timeline = build_measured_timeline(run.graph)
    whole = attribute_stream_idle_time(run.program, timeline)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_module, "MAX_SEGMENTS_AT_ONCE", most)
        parts = attribute_stream_idle_time(run.program, timeline)
    for one, other in zip(whole, parts, strict=True):
        assert one.segments.equals(other.segments)
        assert one.steps.equals(other.steps)
