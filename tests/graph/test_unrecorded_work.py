"""Waits of the CPU for work of the GPU that isn't in the trace; times in microseconds."""

import numpy as np
import pytest

from tests.codes import list_codes
from tests.graphs import edges, graph_of, play
from tracekit.analysis.critical_path import compute_critical_path
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.sensitivity import SpeedReplays
from tracekit.analysis.waits import measure_unrecorded_time
from tracekit.doctor import Status, examine
from tracekit.graph.edges import EdgeKind
from tracekit.reporting.sections.limits import analyze_idle_time
from tracekit.reporting.sections.warnings import build_warnings
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

ITEM = {"kind": "gpu_memcpy", "call": "cudaMemcpyAsync"}
BACK = "Memcpy DtoH (Device -> Pageable)"
WAITS = [
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cuCtxSynchronize",
    "hipDeviceSynchronize",
    "hipStreamSynchronize",
    "urQueueFinish",
]


def steps_with_lost_work(call: str = "cudaDeviceSynchronize", late: float = 1000, steps: int = 3) -> TraceBuilder:
    """Steps of 2000: a kernel of 500 that starts 10 after its launch, and a wait that returns ``late`` after it."""
    builder = TraceBuilder()
    for number in range(steps):
        at = number * 2000
        builder.step(number, at, 2000).kernel("gemm", at + 20, 500, launch=at + 10).call(call, at + 30, 490 + late)
    return builder


@pytest.mark.parametrize("call", WAITS)
def test_what_a_wait_takes_beyond_the_recorded_work_is_the_gpus(call):
    run = prepare_run(steps_with_lost_work(call).load())
    assert measure_unrecorded_time(run.program).time_us == 1000
    assert measure_unrecorded_time(run.program).waits == 1
    on = compute_critical_path(run.program, run.measured_timeline).sum_by("edge", "on")
    assert on.filter(edge="unrecorded").select("on", "time_us").rows() == [("gpu", 2 * 1000)]
    causes = dict(analyze_idle_time(run).sum_by_cause().select("cause", "time_us").iter_rows())
    assert causes[IdleCause.UNRECORDED] == 1000
    assert causes[IdleCause.LAUNCH_BOUND] + causes.get(IdleCause.SYNC_BOUND, 0) == 480 + 10


def test_such_a_trace_is_warned_of_and_not_graded_a():
    trace = steps_with_lost_work().load()
    run = prepare_run(trace)
    assert "unrecorded-work" in list_codes(build_warnings(run, analyze_idle_time(run)))
    found = {check.name: check for check in examine(trace, run).checks}["unrecorded_work"]
    assert (found.cost_pct, found.status) == (50, Status.FAIL)


def test_a_little_of_it_is_enough_for_no_grade_a():
    trace = steps_with_lost_work(late=60).load()
    found = {check.name: check for check in examine(trace, prepare_run(trace)).checks}["unrecorded_work"]
    assert (found.cost_pct, found.status) == (3, Status.WARN)


@pytest.mark.parametrize(("late", "found"), [(50, 0), (51, 1)])
def test_a_wait_that_returns_50_late_is_none(late, found):
    assert edges(graph_of(steps_with_lost_work(late=late, steps=1)), EdgeKind.UNRECORDED) >= found
    assert (edges(graph_of(steps_with_lost_work(late=late, steps=1)), EdgeKind.UNRECORDED) > 0) == found


def test_a_host_that_needs_no_time_waits_as_long_and_a_gpu_that_needs_none_ends_it():
    """Of the step of 2000 the GPU has 500 and 1000, the host 480 until the next and 10 to launch; 10 is latency."""
    replays = SpeedReplays(prepare_run(steps_with_lost_work().load()))
    assert replays.compute_step_time_us(host=np.inf) == pytest.approx(500 + 1000 + 10, abs=1)
    assert replays.compute_step_time_us(gpu=2) == pytest.approx(2000 - 750, abs=1)


def test_a_copy_of_a_result_that_starts_late_waited_too():
    """The copy of ``.item()`` starts 1010 after the kernel before it ended, while its call waits."""
    builder = TraceBuilder().kernel("gemm", 10, 500, launch=0).kernel("gemm", 511, 9, launch=8)
    builder.kernel(BACK, 1530, 2, launch=20, launch_dur=1520, **ITEM)
    graph = graph_of(builder.op("aten::add", 1540, 10))
    assert graph.lag_ns[graph.unrecorded_edges].tolist() == [1_010_000]
    assert play(graph, 100, 9, 2).activity_start_ns[2] == 1_530_000 - 400_000


def test_a_large_copy_may_prepare_memory_for_as_long_as_it_takes():
    builder = TraceBuilder().kernel("gemm", 10, 500, launch=0).kernel("gemm", 511, 9, launch=8)
    builder.kernel(BACK, 720, 200, launch=20, launch_dur=910, **ITEM)
    assert edges(graph_of(builder), EdgeKind.UNRECORDED) == 0


def test_what_runs_on_another_stream_or_gpu_until_the_wait_is_over_may_be_what_it_waits_for():
    for device, stream in ((0, 9), (1, 7)):
        builder = steps_with_lost_work("cudaStreamSynchronize", steps=1)
        builder.kernel("gemm", 40, 1475, launch=15, stream=stream, device=device)
        assert edges(graph_of(builder), EdgeKind.UNRECORDED) == 0


def test_the_profiler_may_have_held_up_the_call_instead():
    builder = steps_with_lost_work(steps=1).overhead("Buffer Flush", 530, 980)
    assert edges(graph_of(builder), EdgeKind.UNRECORDED) == 0


def test_a_call_that_frees_memory_works():
    assert edges(graph_of(steps_with_lost_work("cudaFree", steps=1)), EdgeKind.UNRECORDED) == 0


def test_without_the_rule_the_cpu_works():
    run = prepare_run(steps_with_lost_work("cudaStreamSynchronize").load(), without_rules=["unrecorded-work"])
    assert measure_unrecorded_time(run.program) is None


def test_a_wait_for_nothing_recorded_at_all_is_for_work_that_isnt():
    """The second step has no kernel: its call waits from 30 to 1520, and an idle GPU would answer within 10."""
    builder = TraceBuilder().step(0, 0, 2000).kernel("gemm", 20, 500, launch=10).call("cudaDeviceSynchronize", 30, 495)
    builder.step(1, 2000, 2000).call("cudaDeviceSynchronize", 2030, 1490)
    builder.kernel("gemm", 3600, 100, launch=3590)
    graph = graph_of(builder)
    assert set(graph.lag_ns[graph.unrecorded_edges].tolist()) == {1_490_000}
