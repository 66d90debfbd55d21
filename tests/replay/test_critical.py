"""Critical paths and sensitivities that can be worked out by hand; times in microseconds."""

from math import inf

import polars as pl
import pytest
from hypothesis import given, settings

import tests.test_properties as properties
import tracekit as tk
from tests.conftest import SAMPLES
from tests.graph.test_replays import replays
from tests.replay.test_idle import after_a_sync
from tracekit.analysis.critical_path import CriticalPath, compute_critical_path
from tracekit.analysis.sensitivity import (
    SpeedReplays,
    compute_sensitivity,
    find_limit_speeds,
)
from tracekit.ingest.ranks import combine_ranks
from tracekit.replay.engine import build_measured_timeline, replay
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.whatif import apply_edits, compute_step_time_us


def path_of(builder: TraceBuilder) -> CriticalPath:
    run = prepare_run(builder.load())
    return compute_critical_path(run.program, build_measured_timeline(run.graph))


def time_on(path: CriticalPath) -> dict[str, float]:
    return dict(path.sum_by("on").select("on", "time_us").iter_rows())


def gpu_bound() -> TraceBuilder:
    """Eight kernels of 100 with gaps of 2 from 10 on, launched 6 apart."""
    builder = TraceBuilder()
    for i in range(8):
        builder.op("aten::mm", 6 * i, 5).kernel("gemm", 10 + 102 * i, 100, launch=6 * i)
    return builder


def test_gpu_bound():
    path = path_of(gpu_bound())
    assert time_on(path) == {"gpu": 800, "latency": 10 + 7 * 2}
    assert path.sum_by("op")["op"].to_list() == ["aten::mm"]


def test_through_a_synchronisation():
    """Launch latency 10, kernel 100, return 4, CPU 50, launch latency 10, kernel 30."""
    path = path_of(after_a_sync(50))
    assert path.segments["edge"].to_list() == ["launch", "run", "sync", "program", "launch", "run"]
    assert path.segments["time_ns"].to_list() == [10_000, 100_000, 4_000, 50_000, 10_000, 30_000]
    assert path.sum_by("on", "op").row(0) == ("gpu", "aten::mm", 100.0, pytest.approx(100 / 204), 1)


def test_steps_that_are_not_in_a_row_follow_one_another_in_time():
    """Five steps of 500, each an op, a launch and a kernel of 400; of the last four the second is left out."""
    builder = TraceBuilder()
    for step in range(5):
        begin = 500 * step
        builder.step(step, begin, 500).op("aten::mm", begin + 10, 5).kernel("gemm", begin + 30, 400, launch=begin + 10)
    whole = prepare_run(builder.load(), steps="1:4")
    run = whole.replace_chosen_steps(whole.chosen_steps.filter(pl.col("step") != 2))
    path = compute_critical_path(run.program, build_measured_timeline(run.graph))
    assert path.segments["begin_ns"].is_sorted()
    assert path.segments["time_ns"].sum() == path.span_ns == 1_500_000


def test_the_shorter_stream_is_not_on_it():
    builder = gpu_bound().kernel("memcpy", 30, 50, launch=20, stream=9)
    assert "memcpy" not in path_of(builder).segments["op"].to_list()


@settings(max_examples=25, deadline=None)
@given(properties.many)
def test_the_pieces_follow_each_other_and_add_up_to_the_span(launches):
    run = prepare_run(combine_ranks([properties.trace_of(launches)]))
    for timeline in (build_measured_timeline(run.graph), replay(run.graph)):
        path = compute_critical_path(run.program, timeline)
        assert path.segments["time_ns"].sum() == path.span_ns
        assert (path.segments["begin_ns"][1:] == path.segments["end_ns"][:-1]).all()


def run_of(builder: TraceBuilder) -> MeasuredRun:
    return prepare_run(builder.load())


def test_sensitivity_of_a_gpu_bound_run():
    run = run_of(gpu_bound())
    found = compute_sensitivity(SpeedReplays(run), gpu_speeds=(1, 2, inf), host_speeds=(1, inf))
    times = {(g, h): t for g, h, t in found.table.select("gpu_speed", "host_speed", "step_time_us").iter_rows()}
    assert times[1, 1] == 824
    assert times[2, 1] == 424
    # Without any GPU time: the last launch at 42, 10 of latency.
    assert found.gpu_floor_us == times[inf, 1] == 52
    assert times[inf, inf] < 52
    assert found.table["speedup"][0] == 1


def test_speeds_are_on_the_scale_of_the_measured_step_as_edits_are():
    run = prepare_run(tk.load(SAMPLES / "synthetic_transformer_train.json.gz"))
    table = compute_sensitivity(SpeedReplays(run), gpu_speeds=(1, 2), host_speeds=(1,)).table
    assert table["step_time_us"].to_list() == pytest.approx(
        [run.measured_step.step_time_us, compute_step_time_us(apply_edits(run.program, ["scale(0.5)"]).program)]
    )


def test_the_host_becomes_the_limit():
    """Kernels of 100 with gaps of 2, launched 60 apart: from 100 / 58 on the launches are what takes the time."""
    builder = TraceBuilder()
    for i in range(100):
        builder.op("aten::mm", 60 * i, 5).kernel("gemm", 10 + 102 * i, 100, launch=60 * i)
    assert find_limit_speeds(SpeedReplays(run_of(builder))).gpu == pytest.approx(100 / 58, rel=0.05)
    assert find_limit_speeds(SpeedReplays(run_of(gpu_bound()))).gpu is None
    launch_bound = TraceBuilder()
    for start in range(0, 3000, 100):
        launch_bound.op("aten::add", start, 20).kernel("add", start + 8, 10, launch=start)
    assert find_limit_speeds(SpeedReplays(run_of(launch_bound))).gpu == 1


def test_faster_is_never_slower():
    found = compute_sensitivity(SpeedReplays(run_of(after_a_sync(50))))
    for column in ("gpu_speed", "host_speed"):
        other = "host_speed" if column == "gpu_speed" else "gpu_speed"
        falls = found.table.sort(column).select((pl.col("step_time_us").diff().over(other) <= 0).all()).item()
        assert falls
    floor_us = compute_sensitivity(SpeedReplays(run_of(after_a_sync(5)))).host_floor_us
    assert found.host_floor_us == pytest.approx(floor_us, abs=1)


def test_the_gpu_becomes_the_limit():
    """Kernels of 58 with gaps of 2, launched 100 apart: from 100 / 60 on the kernels are what takes the time."""
    builder = TraceBuilder()
    for i in range(100):
        builder.op("aten::mm", 100 * i, 5).kernel("gemm", 10 + 100 * i, 58, launch=100 * i)
    assert find_limit_speeds(SpeedReplays(run_of(builder))).host == pytest.approx(100 / 59, rel=0.05)
    assert find_limit_speeds(SpeedReplays(run_of(gpu_bound()))).host == 1


def test_what_is_kept_as_measured_is_not_the_hosts():
    """Graphs launched 10 apart, each with 100 between its two kernels of 10."""
    run = prepare_run(replays(*[100] * 8).load(), without_rules=["graph-launch-steps"])
    assert compute_sensitivity(SpeedReplays(run)).gpu_floor_us > 800
    assert find_limit_speeds(SpeedReplays(run)).gpu is None


def test_a_faster_network():
    """An all-reduce of 500 between two products of 500."""
    builder = TraceBuilder()
    for i, name in enumerate(("ampere_sgemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ampere_sgemm")):
        builder.kernel(name, 10 + 501 * i, 500, launch=6 * i)
    found = compute_sensitivity(SpeedReplays(run_of(builder))).network
    times = dict(found.iter_rows())
    assert times[1] - times[2] == pytest.approx(250)
    assert times[1] - times[inf] == pytest.approx(500)
    assert compute_sensitivity(SpeedReplays(run_of(gpu_bound()))).network.is_empty()
