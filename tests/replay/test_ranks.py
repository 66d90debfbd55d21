"""Several ranks replayed together; microseconds."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit as tk
from tests.codes import list_codes
from tests.jobs import gradient_step, job
from tracekit.analysis.critical_path import compute_critical_path
from tracekit.analysis.idle import attribute_idle_time
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.waits import find_stragglers
from tracekit.graph.edges import EdgeKind
from tracekit.replay.engine import build_measured_timeline, replay
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

GEMM_0, REDUCE_0, GEMM_1, REDUCE_1 = range(4)


@cache
def straggling(clock: float = 0) -> MeasuredRun:
    """Rank 1's product takes 350, rank 0's 150; the all-reduce ends 50 after the later one has come."""
    return prepare_run(job(gradient_step(150, 412), gradient_step(350, 412, clock=clock)))


def ends(run: MeasuredRun, *kernel_us: float) -> list[float]:
    durations = (np.array(kernel_us) * 1000).astype(np.int64)
    return (replay(run.graph, durations).activity_end_ns / 1000).tolist()


def test_waiting_is_no_part_of_a_collectives_time():
    run = straggling()
    assert (run.kernels["dur_ns"] / 1000).to_list() == [150, 50, 350, 50]
    assert (run.kernels["wait_ns"] / 1000).to_list() == [0, 200, 0, 0]
    assert run.kernels["rank"].to_list() == [0, 0, 1, 1]


@pytest.mark.parametrize("clock", [0, 9, 70_000])
def test_the_job_replays_to_what_was_measured(clock):
    run = straggling(clock)
    assert run.self_replay.error_pct == pytest.approx(0, abs=1e-9)
    assert ends(run, 150, 50, 350, 50) == [160, 412, 360, 412]
    assert int((run.graph.kind == EdgeKind.RENDEZVOUS).sum()) == 4


def test_waiting_follows_from_who_is_late():
    run = straggling()
    assert ends(run, 150, 50, 250, 50) == [160, 312, 260, 312]  # rank 1 half as late
    assert ends(run, 450, 50, 350, 50) == [460, 512, 360, 512]  # now rank 0 is late
    assert ends(run, 150, 20, 350, 20) == [160, 382, 360, 382]  # a faster network


def marked(first_step: int, clock: float = 0) -> TraceBuilder:
    """Two steps of 500, numbered from ``first_step``, each with a product and an all-reduce."""
    builder = TraceBuilder()
    for number in range(2):
        at = clock + 500 * number
        builder.step(first_step + number, at, 490).kernel("gemm", at + 20, 100, launch=at + 10)
        args = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1000, "Group size": 2}
        builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", at + 130, 200, launch=at + 30, **args)
    return builder


@pytest.mark.parametrize("other", [105, 6])
def test_ranks_that_number_their_steps_differently_are_joined_by_time(other):
    run = prepare_run(job(marked(5), marked(other)))
    assert run.measured_step.step_time_us == pytest.approx(490, abs=10)
    assert run.measured_step.step_time_us == prepare_run(job(marked(5), marked(5))).measured_step.step_time_us
    assert "steps-joined-by-time" in list_codes(run.provenance.job_warnings)


def test_ranks_recorded_a_step_apart_keep_their_numbers():
    run = prepare_run(job(marked(5), marked(6, clock=500)))
    assert not [code for code in list_codes(run.provenance.job_warnings) if code.startswith("steps-")]


def test_times_of_the_job_are_those_of_the_last_rank_and_the_mean_gpu():
    step = straggling().measured_step
    assert step.step_time_us == 412
    assert step.kernel_time_us == ((150 + 250) + (350 + 50)) / 2
    assert step.waiting_us == 200 / 2
    assert step.exposed_comm_us == (250 + 50) / 2


def test_stragglers():
    rows = find_stragglers(straggling(clock=7).program).rows(named=True)
    assert [(row["wait_us"], row["last_share"], row["held_up_us"]) for row in rows] == [(200, 0, 0), (0, 1, 200)]
    assert [(row["busy_us"], row["clock_ahead_us"]) for row in rows] == [(200, 0), (400, 7)]


def test_one_rank_has_no_stragglers():
    assert find_stragglers(prepare_run(gradient_step(150, 412).load()).program).is_empty()


def test_idle_time_is_each_ranks_own():
    """Both wait 2 between product and all-reduce; before the product 10 of launch. Rank 0 then waits 200 for rank 1."""
    run = straggling()
    for timeline in (build_measured_timeline(run.graph), replay(run.graph)):
        idle = attribute_idle_time(run.program, timeline)
        assert idle.steps["idle_ns"].to_list() == [212_000, 12_000]
        assert idle.segments["time_ns"].sum() == 224_000
        waited = idle.segments.filter(pl.col("cause") == IdleCause.RENDEZVOUS)
        assert waited.select("kernel", "time_ns").rows() == [(REDUCE_0, 200_000)]


@settings(max_examples=40, deadline=None)
@given(*[st.integers(1, 400)] * 4)
def test_causes_add_up_over_ranks(gemm_0, gemm_1, transfer_0, transfer_1):
    run = straggling()
    durations = np.array([gemm_0, transfer_0, gemm_1, transfer_1]) * 1000
    timeline = replay(run.graph, durations)
    idle = attribute_idle_time(run.program, timeline)
    assert idle.segments["time_ns"].sum() == idle.steps["idle_ns"].sum()
    assert idle.steps["busy_ns"].to_list() == [1000 * (gemm_0 + transfer_0), 1000 * (gemm_1 + transfer_1)]


def test_the_critical_path_goes_through_the_straggler():
    run = straggling()
    path = compute_critical_path(run.program, replay(run.graph))
    assert path.segments["time_ns"].sum() == path.span_ns
    assert GEMM_1 in path.segments["kernel"].to_list()
    assert GEMM_0 not in path.segments["kernel"].to_list()


def test_the_straggler_is_reported():
    report = tk.report(job(gradient_step(150, 412), gradient_step(350, 412)))
    assert (report.source.measured, report.source.ranks, report.source.rank) == (2, 2, None)
    assert [(rank.rank, rank.held_up_us) for rank in report.ranks] == [(0, 0), (1, 200)]
    assert not any("ranks" in str(warning) for warning in report.warnings)
    assert dict(report.bars[0].parts)["waiting"] == 100


def test_other_gpus_get_the_whole_job():
    prediction = tk.predict(job(gradient_step(150, 412), gradient_step(350, 412)), gpu="a100-sxm-80gb")["a100-sxm-80gb"]
    assert prediction.step.step_time_us == pytest.approx(412)
    assert prediction.speedup == pytest.approx(1)


def repeated(*ends: float) -> TraceBuilder:
    """All-reduces that start every 1000 and end at a time after that."""
    builder = TraceBuilder()
    for i, end in enumerate(ends):
        for event in gradient_step(150, end, clock=1000 * i).events:
            builder.events.append(event)
    for i, event in enumerate(builder.events):
        event["args"]["correlation"] = i // 2
    return builder


def test_waiting_of_one_rank_alone_is_kept():
    """The shortest of three takes 50: what the others take more was waiting, whatever the kernels take."""
    run = prepare_run(repeated(212, 412, 222).load())
    collectives = run.kernels.filter(run.kernels["family"] == "collective")
    assert (collectives["dur_ns"] / 1000).to_list() == [50, 50, 50]
    assert (collectives["wait_ns"] / 1000).to_list() == [0, 200, 10]
    assert run.self_replay.kept_wait_us == 210
    halved = replay(run.graph, run.kernels["dur_ns"].to_numpy() // 2)
    lasts = (halved.activity_end_ns - halved.activity_start_ns)[[1, 3, 5]]
    assert (lasts / 1000).tolist() == [25, 225, 35]


def test_waiting_for_ranks_that_were_not_read_is_kept_and_said():
    """Two of four: both came at 162; the first time another one came 100 later."""
    args = {"Process Group Ranks": "[0, 1, 2, 3]", "Group size": 4}
    ranks = [repeated(312, 212, 212) for _ in range(2)]
    for rank in ranks:
        for event in rank.events:
            if event["cat"] == "kernel" and "nccl" in event["name"]:
                event["args"].update(args)
    trace = job(*ranks, world_size=4)
    run = prepare_run(trace)
    assert run.self_replay.kept_wait_us == 100
    assert run.self_replay.error_pct == pytest.approx(0, abs=0.1)
    assert "some-ranks-read" in [warning.code for warning in tk.report(trace).warnings]


def test_one_rank_can_be_chosen():
    run = prepare_run(job(gradient_step(150, 412), gradient_step(350, 412)), rank=1)
    assert run.kernels.height == 2
    assert run.collectives is None


TIMES = st.floats(1, 1000)


@settings(max_examples=25, deadline=None)
@given(st.lists(TIMES, min_size=4, max_size=4), st.integers(0, 3), st.floats(0, 500))
def test_no_kernel_gets_faster_by_another_that_gets_slower(times, which, more):
    run = straggling()
    slower = list(times)
    slower[which] += more
    assert all(a <= b for a, b in zip(ends(run, *times), ends(run, *slower), strict=True))


@settings(max_examples=25, deadline=None)
@given(st.lists(TIMES, min_size=4, max_size=4))
def test_no_rank_ends_a_collective_before_all_have_come(times):
    run = straggling()
    timeline = replay(run.graph, (np.array(times) * 1000).astype(np.int64))
    last = timeline.activity_start_ns[[REDUCE_0, REDUCE_1]].max()
    for row in (REDUCE_0, REDUCE_1):
        assert timeline.activity_end_ns[row] == last + int(times[row] * 1000)
