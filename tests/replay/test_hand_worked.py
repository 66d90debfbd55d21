"""Small traces whose replay can be worked out by hand; times in microseconds."""

import numpy as np
import polars as pl
import pytest

from tests.graphs import edges, graph_of, play
from tracekit.graph.edges import EdgeKind
from tracekit.replay.engine import Timeline, replay
from tracekit.testing import TraceBuilder

AUTOGRAD = 200


def us(times: np.ndarray) -> list[float]:
    return (times / 1000).tolist()


def end_of_cpu(timeline: Timeline) -> float:
    """When the main thread is done: its last mark."""
    return timeline.end_ns[timeline.host_node_count - 1] / 1000


def launch_bound() -> TraceBuilder:
    """Three launches 100 apart, each kernel 10 long, 8 after its launch."""
    builder = TraceBuilder()
    for start in (0, 100, 200):
        builder.op("aten::add", start, 20).kernel("add", start + 8, 10, launch=start)
    return builder


def test_launch_bound_steps_ignore_the_gpu():
    graph = graph_of(launch_bound())
    assert us(play(graph).activity_start_ns) == [8, 108, 208]
    assert us(play(graph, 5, 5, 5).activity_end_ns) == [13, 113, 213]
    assert us(play(graph, 0, 0, 0).activity_start_ns) == [8, 108, 208]


def test_a_slower_gpu_makes_it_gpu_bound():
    # 8 + 150, then the default gap of 1 between queued kernels, twice.
    assert us(play(graph_of(launch_bound()), 150, 150, 150).activity_end_ns) == [158, 309, 460]


def gpu_bound() -> TraceBuilder:
    """Six launches 10 apart, kernels of 100 with gaps of 2, then a synchronisation that returns 4 late."""
    builder = TraceBuilder()
    for i in range(6):
        builder.op("aten::mm", 10 * i, 8).kernel("gemm", 10 + 102 * i, 100, launch=10 * i)
    return builder.call("cudaDeviceSynchronize", 60, 564).op("aten::after", 630, 10)


def test_gaps_of_two_lengths_in_whole_microseconds():
    """Six gaps, half of 2 and half of 12: none lies at their median, 7, which is the usual one."""
    builder, starts = TraceBuilder(), [0, 102, 214, 316, 428, 530, 642]
    for i, start in enumerate(starts):
        builder.op("aten::mm", 10 * i, 8).kernel("gemm", 100 + start, 100, launch=10 * i)
    assert us(play(graph_of(builder)).activity_start_ns) == [100 + 107 * i for i in range(7)]


def test_gaps_beside_a_set_are_longer_than_between_kernels():
    """Six times a set, 3 after the kernel before it, and two kernels, the first 3 after the set and the second 1."""
    builder, at, starts = TraceBuilder(), 100.0, []
    for _ in range(6):
        for name, gap, kind in (("Memset (Device)", 3, "gpu_memset"), ("quant", 3, "kernel"), ("gemm", 1, "kernel")):
            builder.kernel(name, at + gap, 20, launch=5 * len(starts), launch_dur=2, kind=kind)
            starts.append(at + gap)
            at += gap + 20
    assert us(play(graph_of(builder)).activity_start_ns)[1:] == pytest.approx(starts[1:], abs=1)


def test_gpu_bound_replay_is_exact():
    graph = graph_of(gpu_bound())
    timeline = play(graph)
    assert us(timeline.activity_start_ns) == [10 + 102 * i for i in range(6)]
    assert end_of_cpu(timeline) == 640


def test_the_wait_of_a_synchronisation_is_derived_anew():
    graph = graph_of(gpu_bound())
    assert edges(graph, EdgeKind.SYNC) == 1
    # Kernels of 50: the last ends at 10 + 6 * 50 + 5 * 2 = 320, the call 4 later, the op after it 6 + 10 later.
    halved = play(graph, *[50] * 6)
    assert us(halved.activity_end_ns)[-1] == 320
    assert end_of_cpu(halved) == 340
    assert graph.waits.derived_ns.sum() == pytest.approx((564 - 10) * 1000, abs=10_000)


@pytest.mark.parametrize("call", ["cudaStreamSynchronize", "cudaStreamSynchronize_ptsz", "hipStreamSynchronize_spt"])
def test_a_synchronisation_that_had_nothing_to_wait_for_binds_on_a_slower_gpu(call):
    builder = TraceBuilder().op("aten::mm", 0, 8).kernel("gemm", 10, 20, launch=0)
    graph = graph_of(builder.call(call, 200, 3).op("aten::after", 210, 10))
    assert end_of_cpu(play(graph)) == 220
    slow = play(graph, 1000)
    assert end_of_cpu(slow) > 1010


def test_a_synchronisation_waits_for_what_was_launched_last_rather_than_before_the_trace():
    builder = TraceBuilder().kernel("early", 0, 30, stream=20).kernel("mine", 45, 15, launch=40)
    graph = graph_of(builder.call("cudaStreamSynchronize", 100, 5).kernel("later", 120, 15, launch=110, stream=9))
    slow = play(graph, 30, 1000, 15)
    assert us(slow.activity_start_ns)[2] > 1045


def test_backward_runs_between_two_parts_of_the_main_thread():
    """Main launches, goes quiet at 100; autograd works from 120 to 600, waiting for its GPU; main resumes at 620."""
    builder = (
        TraceBuilder()
        .op("aten::forward", 0, 100)
        .kernel("gemm", 20, 50, launch=10)
        .op("autograd::mm", 120, 480, thread=AUTOGRAD)
        .kernel("gemm", 140, 400, launch=130, thread=AUTOGRAD)
        .call("cudaDeviceSynchronize", 150, 395, thread=AUTOGRAD)
        .op("aten::optimizer", 620, 80)
        .kernel("adam", 640, 20, launch=630)
    )
    graph = graph_of(builder)
    assert edges(graph, EdgeKind.HANDOVER) == 2
    assert us(play(graph).activity_start_ns) == [20, 140, 640]
    faster = play(graph, 50, 100, 20)
    # The backward kernel ends 300 sooner, and with it everything that follows.
    assert us(faster.activity_start_ns) == [20, 140, 340]


def test_a_busy_thread_is_not_taken_to_wait():
    """The main thread works all along; the other one's burst is no reason for anything it does."""
    builder = TraceBuilder()
    for i in range(10):
        builder.op("aten::add", 40 * i, 35).kernel("add", 40 * i + 8, 10, launch=40 * i)
    builder.op("aten::copy", 100, 150, thread=AUTOGRAD).kernel("copy", 120, 5, launch=110, thread=AUTOGRAD, stream=9)
    assert edges(graph_of(builder), EdgeKind.HANDOVER) == 0


def test_a_full_launch_queue_holds_the_cpu_back():
    """Launches every 5, kernels of 20: from the 1023rd on, a launch waits for the kernel 1022 before it."""
    builder = TraceBuilder()
    now, ends = 0.0, []
    for i in range(1200):
        launch = now
        start = max(launch + 8, ends[-1] + 1 if ends else 0)
        ends.append(start + 20)
        done = launch + 4 if i < 1022 else max(launch + 4, ends[i - 1022] + 6)
        builder.kernel("add", start, 20, launch=launch, launch_dur=done - launch)
        now = done + 1
    graph = graph_of(builder)
    assert edges(graph, EdgeKind.QUEUE) == 1200 - 1022
    measured_end = graph.nodes.end_ns.max()
    assert replay(graph).end_ns.max() == pytest.approx(measured_end, rel=1e-3)
    last_launch = replay(graph, np.full(1200, 40_000)).start_ns[1199]
    # Kernels of 40: the last launch ends when kernel 177 does, 8 + 178 * 41 - 1 + 6.
    assert last_launch / 1000 == pytest.approx(8 + 177 * 41 - 1 + 6 + 1, abs=50)


def test_one_stream_waiting_for_another():
    """The second stream's kernel was launched at 20 but starts when the first stream's ends."""
    builder = TraceBuilder().kernel("gemm", 10, 500, launch=0).kernel("nccl", 512, 100, launch=20, stream=9)
    graph = graph_of(builder)
    assert edges(graph, EdgeKind.EVENT) == 1
    assert us(play(graph).activity_start_ns) == [10, 512]
    assert us(play(graph, 100, 100).activity_start_ns) == [10, 112]


def test_a_device_synchronisation_returns_after_the_stream_that_ends_last():
    """Stream 9 ends at 57, stream 7 at 16; the call returns at 61, 4 after the later one."""
    builder = (
        TraceBuilder()
        .kernel("long", 9, 48, launch=1, stream=9)
        .kernel("short", 15, 1, launch=7)
        .call("cudaDeviceSynchronize", 13, 48)
        .op("aten::after", 62, 2)
    )
    assert end_of_cpu(play(graph_of(builder))) == pytest.approx(64, abs=2)


def test_pageable_copies_block_their_call():
    builder = (
        TraceBuilder()
        .kernel("gemm", 10, 300, launch=0)
        .kernel("Memcpy DtoH (Device -> Pageable)", 312, 5, launch=20, launch_dur=303, kind="gpu_memcpy",
                call="cudaMemcpyAsync")
        .kernel("next", 340, 10, launch=330)
    )  # fmt: skip
    graph = graph_of(builder)
    assert edges(graph, EdgeKind.SYNC) == 1
    faster = us(play(graph, 100, 5, 10).activity_start_ns)
    assert faster == pytest.approx([10, 111, 139], abs=2)


def test_a_copy_that_its_call_stages_first_starts_with_the_call():
    """200 of staging within the call, with nothing from before the trace: a faster host brings it forward."""
    builder = (
        TraceBuilder()
        .op("aten::prepare", 0, 1000)
        .kernel("first", 8, 5, launch=0, stream=9)
        .kernel("Memcpy HtoD (Pageable -> Device)", 1200, 100, launch=1000, launch_dur=290, kind="gpu_memcpy",
                call="cudaMemcpyAsync")
    )  # fmt: skip
    faster = replay(graph_of(builder), host_time=0.0)
    assert faster.activity_start_ns[1] < 300_000


def test_work_launched_before_the_trace_keeps_its_place():
    builder = TraceBuilder().op("aten::first", 0, 5).kernel("old", 40, 100).kernel("new", 142, 50, launch=20)
    assert us(play(graph_of(builder)).activity_start_ns) == [40, pytest.approx(141, abs=1)]


def test_edges_that_contradict_each_other_are_dropped_and_counted():
    graph = graph_of(gpu_bound())
    assert graph.dropped == 0


def test_every_edge_points_forward():
    graph = graph_of(gpu_bound())
    dst = graph.dst
    assert (graph.src < dst).all()


def test_graph_without_any_call():
    graph = graph_of(TraceBuilder().kernel("a", 10, 20).kernel("b", 35, 10))
    assert us(play(graph).activity_start_ns) == [0, 25]


def test_marks_lie_where_the_steps_begin_and_end():
    builder = launch_bound().step(4, 0, 95).step(5, 95, 205)
    graph = graph_of(builder)
    timeline = play(graph)
    assert us(timeline.start_ns[graph.nodes.n_host - 4 : graph.nodes.n_host]) == [0, 95, 95, 300]
    assert isinstance(graph.nodes.names, pl.Series)
