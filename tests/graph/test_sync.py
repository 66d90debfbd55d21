"""Calls that return long after what they waited for, on small traces; times in microseconds."""

import pytest

from tests.graphs import graph_of, play
from tracekit.graph import Graph
from tracekit.rules import NO_RULES, RuleNames
from tracekit.testing import TraceBuilder


def end_of_cpu(graph: Graph, *durations: float) -> float:
    """When the main thread is done: its last mark."""
    timeline = play(graph, *durations)
    return float(timeline.end_ns[timeline.host_node_count - 1]) / 1000


def late(call: str, kernel: float, by: float, without: RuleNames = NO_RULES) -> Graph:
    """A kernel from 10 on; a call from 30 until it is over, and longer by what is asked for; an op of 10."""
    launch = "hipLaunchKernel" if call.startswith("hip") else "cudaLaunchKernel"
    builder = TraceBuilder().kernel("gemm", 10, kernel, launch=0, call=launch)
    builder.call(call, 30, kernel - 20 + by)
    return graph_of(builder.op("aten::item", kernel + by + 10, 10), without=without)


@pytest.mark.parametrize("call", ["cudaDeviceSynchronize", "cudaStreamSynchronize"])
def test_a_long_wait_that_returns_98_late_is_still_a_wait(call):
    graph = late(call, 1e6, by=98)
    assert end_of_cpu(graph) == pytest.approx(1e6 + 118, abs=1)
    assert end_of_cpu(graph) - end_of_cpu(graph, 5e5) == 5e5


def test_a_rocm_call_may_seem_to_return_a_little_before_the_kernel_ends():
    """ROCm's clocks of CPU and GPU differ by up to 10; CUDA's don't."""
    for call, by, waits in (("hipDeviceSynchronize", -8, True), ("hipDeviceSynchronize", -15, False)):
        graph = late(call, 5000, by=by)
        assert (end_of_cpu(graph) - end_of_cpu(graph, 2500) == pytest.approx(2500, abs=10)) == waits
    cuda = late("cudaDeviceSynchronize", 5000, by=-8)
    assert end_of_cpu(cuda) == end_of_cpu(cuda, 2500)


def test_what_a_call_does_after_its_wait_stays():
    graph = late("cudaFree", 4500, by=4700)
    assert end_of_cpu(graph) - end_of_cpu(graph, 2250) == 2250
    assert end_of_cpu(graph, 0) == 30 + 4700 + 10


def test_a_stream_that_a_call_only_may_have_waited_for_has_to_end_right_before_it():
    """Unless what the call waited for isn't recorded."""
    graph = late("cudaStreamSynchronize", 4500, by=200)
    assert end_of_cpu(graph, 0) == 10 + 200 + 10
    without = late("cudaStreamSynchronize", 4500, by=200, without=frozenset({"unrecorded-work"}))
    assert end_of_cpu(without, 0) == end_of_cpu(without)


def test_a_pageable_copy_waits_and_then_moves_what_came():
    """The copy's call takes from 40 to 12800, the copy from 12020 to 12100."""
    builder = TraceBuilder().kernel("gemm", 20, 12000, launch=10)
    copy = "Memcpy DtoH (Device -> Pageable)"
    builder.kernel(copy, 12020, 80, launch=40, launch_dur=12760, kind="gpu_memcpy", call="cudaMemcpyAsync")
    graph = graph_of(builder.op("aten::item", 12800, 10))
    assert end_of_cpu(graph) - end_of_cpu(graph, 6000, 80) == 6000
    assert end_of_cpu(graph, 0, 0) > 740


@pytest.mark.parametrize("copy", ["Memcpy DtoD (Device -> Device)", "CopyDeviceToDevice", "Memcpy HtoD (Pinned)"])
def test_a_copy_on_the_gpu_or_from_pinned_memory_holds_no_call(copy):
    builder = TraceBuilder().op("aten::to", 0, 5)
    builder.kernel(copy, 15, 10, launch=10, launch_dur=20, kind="gpu_memcpy", call="hipMemcpyAsync")
    graph = graph_of(builder.op("aten::item", 30, 10))
    assert end_of_cpu(graph, 1000) == end_of_cpu(graph) == 40


def test_a_copy_from_pageable_memory_holds_its_call_until_the_last_piece_is_on_its_way():
    """The copy's call takes from 10 to 4170, the copy from 250 to 4250."""
    builder = TraceBuilder().op("aten::to", 0, 5)
    copy = "Memcpy HtoD (Pageable -> Device)"
    builder.kernel(copy, 250, 4000, launch=10, launch_dur=4160, kind="gpu_memcpy", call="cudaMemcpyAsync")
    graph = graph_of(builder.op("aten::item", 4170, 10))
    assert end_of_cpu(graph) == 4180
    assert end_of_cpu(graph, 1500) == 4180 - 2500
    assert end_of_cpu(graph, 9000) == 4180 + 5000
    assert end_of_cpu(graph, 0) == 250 - 80 + 10


def test_a_copy_from_pageable_memory_waits_for_the_stream_and_with_it_its_call():
    """A kernel from 10 to 1010, a copy from 1010 to 1210 behind it, whose call takes from 20 to 1150."""
    builder = TraceBuilder().kernel("gemm", 10, 1000, launch=0)
    copy = "Memcpy HtoD (Pageable -> Device)"
    builder.kernel(copy, 1010, 200, launch=20, launch_dur=1130, kind="gpu_memcpy", call="cudaMemcpyAsync")
    graph = graph_of(builder.op("aten::item", 1150, 10))
    assert end_of_cpu(graph) == pytest.approx(1160, abs=1)
    assert end_of_cpu(graph) - end_of_cpu(graph, 500, 200) == 500


def test_a_short_copy_from_pageable_memory_holds_up_nothing():
    """The call returns at 20, before its copy starts at 30."""
    builder = TraceBuilder().op("aten::to", 0, 5)
    copy = "Memcpy HtoD (Pageable -> Device)"
    builder.kernel(copy, 30, 2, launch=10, launch_dur=10, kind="gpu_memcpy", call="cudaMemcpyAsync")
    graph = graph_of(builder.op("aten::item", 40, 10))
    assert end_of_cpu(graph, 900) == end_of_cpu(graph) == 50


def test_calls_that_return_during_their_copy_say_nothing_of_those_that_wait_for_its_end():
    """Three copies to the GPU whose calls return 80 before they are over, three from it, 5 after: so one of 500 too."""
    builder = TraceBuilder().op("aten::to", 0, 5)
    for at in range(0, 30_000, 10_000):
        to, back = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)"
        builder.kernel(to, at + 250, 4000, launch=at + 10, launch_dur=4160, kind="gpu_memcpy", call="cudaMemcpyAsync")
        builder.kernel(back, at + 6020, 80, launch=at + 6010, launch_dur=95, kind="gpu_memcpy", call="cudaMemcpyAsync")
    graph = graph_of(builder.op("aten::item", 26_105, 10))
    assert end_of_cpu(graph) == pytest.approx(26_115, abs=1)
    assert end_of_cpu(graph, 4000, 80, 4000, 80, 4000, 500) == pytest.approx(26_115 + 420, abs=1)


def test_all_streams_that_a_call_waits_for_have_its_work_behind_them():
    """Kernels of 1000 and 900 on two streams; the call returns 300 after the longer one."""
    builder = TraceBuilder().kernel("gemm", 20, 1000, launch=10).kernel("gemm", 30, 900, launch=20, stream=9)
    graph = graph_of(builder.call("cudaDeviceSynchronize", 40, 1280).op("aten::item", 1320, 10))
    assert end_of_cpu(graph, 0, 900) == end_of_cpu(graph) - 90
