"""How long the first recorded step takes if the GPU was behind when it began; microseconds."""

import pytest

from tests.jobs import job, recorded
from tracekit.analysis.idle import attribute_idle_time
from tracekit.replay.engine import build_measured_timeline
from tracekit.reporting import build_report
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder


def one_step(behind: float, kernel: float, host: float = 300) -> MeasuredRun:
    """A step of four kernels, all launched within ``host``, while the GPU still works on the one before.

    Args:
        behind: How much of the step before the GPU has left when this one begins, in three kernels.
        kernel: How long each kernel takes.
        host: How long the step's mark is.
    """
    builder = TraceBuilder().step(5, 0, host)
    for i in range(3):
        builder.kernel("before", 1 + i * behind / 3, behind / 3)
    free = 1 + behind
    for i in range(4):
        launched = host / 4 * i + 5
        builder.op("aten::mm", launched - 2, 20)
        builder.kernel("mm", max(free, launched + 6), kernel, launch=launched)
        free = max(free, launched + 6) + kernel
    return prepare_run(builder.load())


def test_a_step_begins_when_the_gpu_is_through_with_the_one_before():
    run = one_step(behind=900, kernel=250)
    assert run.measured_step.step_time_us == pytest.approx(1000, abs=1)
    assert run.measured_step.kernel_time_us == pytest.approx(1000, abs=1)
    assert run.self_replay.error_pct == pytest.approx(0, abs=0.5)


def test_a_step_is_no_shorter_than_its_mark():
    """The GPU had caught up within the step: it waits for the CPU, which takes as long as its mark."""
    run = one_step(behind=200, kernel=20)
    assert run.measured_step.step_time_us == pytest.approx(300, abs=1)


def test_a_faster_gpu_shortens_it_to_what_the_host_needs():
    run = one_step(behind=900, kernel=250)
    assert run.program.replay_step(run.program.kernel_us / 2).span_us == pytest.approx(500, abs=5)
    assert run.program.replay_step(run.program.kernel_us / 1000).span_us == pytest.approx(300, abs=10)


def behind_unrecorded_work(waits: float) -> TraceBuilder:
    """Two kernels of 1000, launched at 2 and 20; the first starts late, for a reason that was not recorded."""
    builder = TraceBuilder().step(5, 0, waits + 2020)
    builder.kernel("a", waits, 1000, launch=2).kernel("b", waits + 1001, 1000, launch=20)
    return builder.call("cudaDeviceSynchronize", 60, waits + 1950)


def test_work_that_was_not_recorded_is_no_part_of_the_step_on_any_gpu():
    """The step is 2001 of kernels, then 9 until the synchronization returns and 10 of the host."""
    run = prepare_run(behind_unrecorded_work(5000).load())
    assert run.measured_step.step_time_us == pytest.approx(2020, abs=1)
    assert run.program.replay_step_time_us(run.program.kernel_us / 10) == pytest.approx(220, abs=10)
    assert run.program.replay_step_time_us(0 * run.program.kernel_us) == pytest.approx(60, abs=30)
    assert [one.code for one in run.provenance.job_warnings] == ["step-begins-late"]


def test_without_the_rule_a_step_keeps_the_wait():
    run = prepare_run(behind_unrecorded_work(5000).load(), without_rules=["busy-start"])
    assert run.measured_step.step_time_us == pytest.approx(7020, abs=1)
    assert not run.provenance.job_warnings or "step-begins-late" not in {
        one.code for one in run.provenance.job_warnings
    }


def test_a_host_that_waits_for_the_step_before_counts_from_then():
    """The host waits 900 for earlier kernels, and launches four of 100 in what is left of its mark."""
    builder = TraceBuilder().step(5, 0, 1335).kernel("before", 1, 450).kernel("before", 452, 450)
    builder.call("cudaDeviceSynchronize", 5, 900)
    for i in range(4):
        builder.kernel("mm", 920 + 101 * i, 100, launch=910 + 10 * i)
    run = prepare_run(builder.call("cudaDeviceSynchronize", 955, 375).load())
    assert run.measured_step.step_time_us == pytest.approx(1335 - 902, abs=1)
    assert run.program.replay_step_time_us(run.program.kernel_us / 2) == pytest.approx(228, abs=10)


def test_a_kernel_after_a_pause_is_no_earlier_work():
    """Its launch was lost: the GPU had been idle for 400 since the step began."""
    builder = TraceBuilder().step(5, 0, 1000).kernel("lost", 400, 20).kernel("mm", 430, 500, launch=10)
    run = prepare_run(builder.call("cudaDeviceSynchronize", 30, 910).load())
    assert run.measured_step.step_time_us == pytest.approx(1000, abs=1)


def test_what_only_the_first_of_several_steps_did_is_in_no_figure():
    """The first of three steps allocates for 50,000; the others leave the GPU idle for 10."""
    builder, start = TraceBuilder(), 0.0
    for number, allocates in enumerate((50_000, 0, 0)):
        builder.step(number, start, allocates + 1000).op("aten::empty", start + 1, allocates + 20)
        if allocates:
            builder.call("cudaMalloc", start + 5, allocates)
        builder.op("aten::mm", start + allocates + 30, 20)
        builder.kernel("gemm", start + allocates + 40, 990, launch=start + allocates + 32)
        start += allocates + 1000
    run = prepare_run(builder.load())
    report = build_report(run)
    assert run.measured_step.idle_us == pytest.approx(10, abs=1)
    assert sum(row.time_us for row in report.idle) == pytest.approx(10, abs=1)
    assert "allocator" not in {row.cause for row in report.idle} | {finding.code for finding in report.findings}
    assert sum(op.time_us for op in report.critical.ops) == pytest.approx(1000, abs=1)
    assert [step.first for step in report.steps] == [True, False, False]


def test_idle_time_is_of_the_step_alone():
    run = one_step(behind=900, kernel=250)
    idle = attribute_idle_time(run.program, build_measured_timeline(run.graph))
    assert idle.steps["time_ns"].to_list() == [1_000_000]
    assert idle.steps["idle_ns"].sum() == pytest.approx(0, abs=1000)


def test_kernels_without_a_launch_among_those_of_a_step_are_part_of_it():
    builder = TraceBuilder().step(5, 0, 100)
    builder.kernel("mm", 20, 100, launch=10).kernel("orphan", 120, 300).kernel("mm", 420, 100, launch=30)
    assert prepare_run(builder.load()).measured_step.step_time_us == pytest.approx(520, abs=1)


def test_slower_collectives_make_no_step_of_several_ranks_shorter():
    """One rank's GPU still works on what came before, but waits for its CPU as the others do."""

    def rank(begin: float, behind: float) -> TraceBuilder:
        builder = TraceBuilder().step(5, begin, 1000).kernel("before", begin + 1, behind)
        builder.op("aten::mm", begin + 500, 20).kernel("mm", begin + 510, 20, launch=begin + 502)
        return builder.kernel("ncclDevKernel_AllReduce", 640, 20, launch=begin + 525, stream=9, **recorded())

    run = prepare_run(job(rank(0, 400), rank(100, 1)))
    measured_us = run.measured_step.step_time_us
    longer = run.program.kernel_us + 450 * (run.kernels["family"] == "collective").to_numpy()
    assert measured_us == pytest.approx(1100, abs=1)
    assert run.program.replay_step(longer).step_time_us > measured_us
