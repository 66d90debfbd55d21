"""What activities wait for after their launch, on small traces; times in microseconds."""

import numpy as np
import pytest

from tests.graphs import graph_of
from tracekit.analysis.binding_edges import run_self_check
from tracekit.replay.engine import replay
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "cudaGraphLaunch_ptsz", "hipGraphLaunch_spt"])
def test_a_graph_starts_once_its_launch_call_has_handed_it_over(call):
    graph = graph_of(TraceBuilder().kernel("first", 1502, 10, launch=0, launch_dur=1500, call=call))
    assert replay(graph).activity_start_ns.tolist() == [1_500_000]
    assert replay(graph, host_time=0.5).activity_start_ns.tolist() == [750_000]


def test_a_graph_that_ran_before_its_launch_call_returned_only_waits_for_the_launch():
    builder = TraceBuilder().kernel("first", 20, 10, launch=0, launch_dur=1500, call="cudaGraphLaunch")
    assert replay(graph_of(builder)).activity_start_ns.tolist() == [20_000]


def slow_launch(first: float, dur: float = 9000) -> TraceBuilder:
    """A graph of 50 kernels of 100 whose call takes from 100 for 9000, after a kernel launched at 0."""
    builder = TraceBuilder().kernel("eager", 10, 10, launch=0)
    builder.kernel("g0", first, 100, launch=100, launch_dur=dur, call="cudaGraphLaunch")
    for i in range(1, 50):
        builder.kernel(f"g{i}", first + 100.5 * i, 100)
        builder.events[-1]["args"]["correlation"] = builder.events[-2]["args"]["correlation"]
    return builder


def test_a_graph_that_starts_right_before_a_slow_call_returns_stays_with_its_end():
    graph = graph_of(slow_launch(first=9065))
    assert replay(graph).activity_start_ns[1] == 9_065_000
    assert replay(graph, host_time=0.5).activity_start_ns[1] == 4_515_000


def test_what_a_slow_call_takes_before_its_graph_starts_on_an_idle_gpu_is_kept():
    assert replay(graph_of(slow_launch(first=7000))).activity_start_ns[1] == 7_000_000


def test_a_graph_that_starts_in_the_midst_of_a_slow_call_may_have_waited_for_the_gpu():
    builder = slow_launch(first=7000).kernel("other", 40, 6900, launch=30, stream=9)
    assert replay(graph_of(builder)).activity_start_ns[1] < 200_000


def test_a_graph_that_starts_in_a_quick_call_starts_a_latency_after_it_began():
    """Which is 48: half of what the two launches take, 10 and 86."""
    assert replay(graph_of(slow_launch(first=186, dur=90))).activity_start_ns[1] == 148_000


def test_a_kernel_whose_slow_call_loads_its_code_starts_as_that_is_nearly_over():
    """Not so where the GPU was busy meanwhile, and the kernel may have been launched long before it started."""
    builder = TraceBuilder().kernel("eager", 10, 10, launch=0).kernel("first", 9065, 10, launch=100, launch_dur=9000)
    assert replay(graph_of(builder)).activity_start_ns[1] == 9_065_000
    assert replay(graph_of(builder), host_time=0.5).activity_start_ns[1] == 4_515_000
    behind = TraceBuilder().kernel("long", 10, 4000, launch=0).kernel("next", 4011, 10, launch=100, launch_dur=9000)
    assert replay(graph_of(behind), np.array([2_000_000, 10_000])).activity_start_ns[1] < 2_100_000


def slow_copy(builder: TraceBuilder) -> TraceBuilder:
    """A copy of pageable memory that starts 355 after its call began, and 3 before that returns."""
    name = "Memcpy HtoD (Pageable -> Device)"
    return builder.kernel(name, 455, 1, launch=100, launch_dur=359, call="cudaMemcpyAsync", kind="gpu_memcpy")


def test_what_a_slow_call_takes_before_its_copy_starts_on_an_idle_gpu_is_kept():
    """The profiler's first buffer, say. On a busy one it may have waited for the GPU."""
    assert replay(graph_of(slow_copy(TraceBuilder().kernel("eager", 10, 10, launch=0)))).activity_start_ns[1] == 455_000
    behind = graph_of(slow_copy(TraceBuilder().kernel("long", 10, 444, launch=0)))
    assert replay(behind, np.array([10_000, 1_000])).activity_start_ns[1] < 200_000


def queued(*gaps: float) -> TraceBuilder:
    builder, now = TraceBuilder(), 100.0
    for i, gap in enumerate(gaps):
        builder.kernel("gemm", now, 50, launch=i)
        now += 50 + gap
    return builder


def test_gaps_in_whole_microseconds_sum_up_to_what_they_are():
    gaps = [0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 2] * 5
    timeline = replay(graph_of(queued(*gaps)))
    whole = timeline.activity_end_ns.max() - timeline.activity_start_ns.min()
    assert whole == pytest.approx(1e3 * (60 * 50 + sum(gaps[:-1])), abs=1e3)


def test_finer_gaps_are_their_median():
    timeline = replay(graph_of(queued(*[0.25, 0.75, 0.75, 1.25, 1.75, 0.25, 0])))
    between = timeline.activity_start_ns[1:] - timeline.activity_end_ns[:-1]
    assert between.tolist() == [750] * 6


def test_rare_copies_take_their_own_time_to_start():
    """Two copies start 60 after their calls, ten kernels 10 after theirs."""
    builder, late = TraceBuilder(), {0: 60, 1: 60}
    for i in range(12):
        kind, name = ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)") if i in late else ("kernel", "gemm")
        builder.kernel(name, 200 * i + late.get(i, 10), 20, launch=200 * i, kind=kind)
    starts = replay(graph_of(builder)).activity_start_ns / 1000
    assert starts.tolist() == [200 * i + late.get(i, 10) for i in range(12)]


def test_calls_that_are_rare_take_as_long_as_others_that_launch_kernels():
    builder = TraceBuilder().kernel("Memset (Device)", 90, 5, launch=0, kind="gpu_memset")
    for i, call in enumerate(["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernelEx"], start=1):
        builder.kernel("gemm", 200 * i + 10, 20, launch=200 * i, call=call)
    assert (replay(graph_of(builder)).activity_start_ns[1:] / 1000).tolist() == [210, 410, 610]


def test_the_check_of_a_graph_lists_the_lags_of_its_edges():
    """Three launches of 5 us, 100 apart, each of a kernel that starts 10 later, 50 long."""
    builder = TraceBuilder()
    for i in range(3):
        builder.op("aten::mul", 100.0 * i, 20).kernel("k", 100.0 * i + 15, 50, launch=100.0 * i + 5)
    table = run_self_check(prepare_run(builder.load()).graph).edge_kind_stats
    rows = {row["edge"]: row for row in table.iter_rows(named=True)}
    assert {edge: row["edges"] for edge, row in rows.items()} == {"run": 8, "program": 4, "launch": 3, "stream": 2}
    assert [rows["launch"][name] for name in ("lag_us", "low_us", "high_us", "binds")] == [10, 10, 10, 3]
    assert [rows["stream"][name] for name in ("lag_us", "binds", "beyond_us")] == [1, 0, None]
    assert (rows["run"]["low_us"], rows["run"]["high_us"]) == (0, 50)
