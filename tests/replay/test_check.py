"""A graph held against what was measured; microseconds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codes import has_code
from tests.jobs import gradient_step, job
from tests.test_properties import linked, many
from tracekit.analysis.binding_edges import make_exact_graph, run_self_check
from tracekit.analysis.sensitivity import transplant
from tracekit.errors import StepError, TraceError
from tracekit.replay.engine import build_measured_timeline, replay
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder


def jittery() -> TraceBuilder:
    """Launches 8, 8, 8 and 11 before their kernels: the last one comes 3 later than the constant says."""
    builder = TraceBuilder().op("aten::add", 0, 300)
    for i, latency in enumerate((8, 8, 8, 11, 8, 8)):
        builder.kernel("add", 100 * i + latency, 10, launch=100 * i)
    return builder


def test_a_step_without_any_time_is_refused():
    with pytest.raises(TraceError, check=has_code("step-time-zero")):
        prepare_run(TraceBuilder().kernel("gemm", 5, 0, launch=5, launch_dur=0).load())


def test_a_step_of_half_a_microsecond_is_measured() -> None:
    run = prepare_run(TraceBuilder().kernel("gemm", 5, 0.5, launch=5, launch_dur=0).load())
    assert run.measured_step.step_time_us == 0.5


def test_steps_in_which_nothing_ran_on_the_gpu_are_refused():
    """The mark of the one step has lost its process, so no thread is known to be in it."""
    builder = TraceBuilder().step(1, 0, 10)
    del builder.events[0]["pid"]
    with pytest.raises(StepError, check=has_code("steps-without-gpu-work")):
        prepare_run(builder.kernel("gemm", 60, 10, launch=50).load())


def test_with_what_the_constants_leave_the_replay_is_exact():
    run = prepare_run(jittery().load())
    found = run_self_check(run.graph)
    assert found.exact_error_ns == 0
    assert found.start_error_us == {0.5: 0, 0.99: pytest.approx(3, abs=0.2)}


def test_constants_are_named():
    rows = {
        row["edge"]: row
        for row in run_self_check(prepare_run(jittery().load()).graph).edge_kind_stats.iter_rows(named=True)
    }
    assert (rows["launch"]["edges"], rows["launch"]["lag_us"], rows["launch"]["binds"]) == (6, 8, 6)
    assert rows["launch"]["beyond_us"] == 0


def test_of_several_ranks():
    run = prepare_run(job(gradient_step(150, 412), gradient_step(350, 412)))
    assert run_self_check(run.graph).exact_error_ns == 0


@settings(max_examples=20, deadline=None)
@given(many)
def test_any_trace_is_given_back_exactly(launches):
    graph, _ = linked(launches)
    exact, recorded = replay(make_exact_graph(graph)), build_measured_timeline(graph)
    assert (exact.start_ns == recorded.start_ns).all()
    assert (exact.end_ns == recorded.end_ns).all()


def products(times: list[float], kernel: str = "gemm") -> TraceBuilder:
    """Products launched at once, one after the other on the GPU with gaps of 2, then a wait for the last."""
    builder, now = TraceBuilder(), 10.0
    for i, time in enumerate(times):
        builder.op("aten::mm", 9 * i, 7, dims=[[i + 1, 8], [8, 8]], types=["float", "float"])
        builder.kernel(kernel, now, time, launch=9 * i)
        now += time + 2
    launched = 9.0 * len(times)
    return builder.call("cudaDeviceSynchronize", launched, now + 2 - launched).op("aten::after", now + 4, 5)


def test_another_runs_kernels_give_its_step():
    slow, fast = (prepare_run(products([time] * 6, name).load()) for time, name in ((100, "gemm"), (50, "sm90_gemm")))
    found = transplant(slow, fast)
    assert found.matched_pct == 100
    assert found.error_pct == pytest.approx(0, abs=0.5)
    assert found.step.step_time_us < 0.6 * slow.measured_step.step_time_us


def test_kernels_that_the_other_lacks_keep_their_time():
    run = prepare_run(products([100] * 6).load())
    found = transplant(run, prepare_run(products([50] * 3).load()))
    assert found.matched_pct == pytest.approx(50)
    assert found.step.kernel_time_us == pytest.approx(3 * 50 + 3 * 100, rel=0.03)


@given(st.lists(st.floats(60, 200), min_size=6, max_size=6), st.lists(st.floats(60, 200), min_size=6, max_size=6))
@settings(max_examples=10, deadline=None)
def test_it_goes_both_ways(here, there):
    one, two = (prepare_run(products(np.round(times, 1).tolist()).load()) for times in (here, there))
    assert abs(transplant(one, two).error_pct) < 1
    assert abs(transplant(two, one).error_pct) < 1
