"""How much later the slowest of more ranks comes."""

from itertools import pairwise

import pytest

import tracekit as tk
from tests.codes import find_message, list_codes
from tests.jobs import job as of_ranks
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.stragglers import (
    HOST_SPEED_FACTOR,
    LIKELY_DOUBLING_LOSS,
    MAX_DOUBLING_LOSS,
    RELAYOUT_ERROR,
    RankSpread,
    StragglerEffect,
    compute_chi_squared_quantile,
    compute_expected_maximum,
    measure_rank_spread,
    predict_stragglers,
)
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

CLUSTER = "64x8xa100-sxm-80gb@hdr200"


def job(*steps: float, world: int = 8, trains: bool = True, end: float | None = None) -> TraceBuilder:
    """Steps that last so long, each a kernel and an all-reduce that the host waits for; it may end later."""
    builder = TraceBuilder()
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": world}
    now = 0.0
    for number, dur in enumerate(steps):
        builder.step(number, now, end or dur)
        if trains:
            builder.op("autograd::engine::evaluate_function: x", now, 1)
        message = {"Collective name": "allreduce", "In msg nelems": 2**10, "dtype": "BFloat16", "Group size": world}
        builder.kernel("sgemm", now + 10, dur - 40, launch=now + 2)
        builder.op("record_param_comms", now + 8, 10, **message)
        done = now + (end or dur)
        start = now + dur - 29
        builder.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", start, done - 9 - start, launch=now + 9)
        builder.call("cudaDeviceSynchronize", now + 20, done - 5 - now - 20)
        now = done
    return builder


def run(*steps: float, **how: bool) -> MeasuredRun:
    return prepare_run(job(*steps, **how).load())


def measure_spread(run: MeasuredRun) -> RankSpread:
    return measure_rank_spread(run.program.tabulate_chosen_steps(run.measured_timeline))


def test_the_spread_of_steps_by_hand():
    """The first step is left out; 1000, 1100 and 900 us vary by 100, a tenth of their mean."""
    found = measure_spread(run(1000, 1000, 1100, 900))
    assert found.compute_std == pytest.approx(0.1, rel=0.02)
    assert found.own_std == pytest.approx(0.1, rel=0.02)
    assert (found.degrees_of_freedom, found.ranks_read) == (2, 1)


def test_what_all_ranks_have_in_common_is_no_straggling():
    """Three ranks compute 960, 860 and 1060 us: a spread of 100, of a mean step of 1100."""
    run = prepare_run(of_ranks(*(job(1000 + more, end=1100, world=3) for more in (0, -100, 100))))
    found = measure_spread(run)
    assert found.compute_std == pytest.approx(100 / 1100, rel=0.03)
    assert (found.degrees_of_freedom, found.ranks_read) == (2, 3)


def test_the_largest_of_some_draws():
    """Of two, 1 / sqrt(pi); of 100, 2.51 (tables of normal order statistics)."""
    assert compute_expected_maximum(1) == 0
    assert compute_expected_maximum(2) == pytest.approx(0.564, abs=0.03)
    assert compute_expected_maximum(100) == pytest.approx(2.508, abs=0.01)
    assert compute_chi_squared_quantile(10) == pytest.approx(4.865, rel=0.01)


def test_more_ranks_wait_longer_and_the_interval_widens():
    mine, spread = run(1000, 1000), RankSpread(compute_std=0.02, own_std=0.05, degrees_of_freedom=20, ranks_read=4)
    found = [predict_stragglers(mine.program, spread, Layout(8), Layout(ranks)) for ranks in (8, 16, 64, 512)]
    assert found[0] == StragglerEffect()
    assert found[-1].likely_factor == pytest.approx(
        1 + 0.02 * (compute_expected_maximum(512) - compute_expected_maximum(8))
    )
    for fewer, more in pairwise(found):
        assert fewer.likely_factor < more.likely_factor < more.max_factor
        assert fewer.max_factor < more.max_factor


def test_an_interval_ends_where_the_slowest_rank_comes_last():
    """A step of 100, likely 1.1 and at most 1.3 times as long, and a quarter shorter at least."""
    assert StragglerEffect(1.1, 1.3, min_factor=0.75).widen_interval(100, 100, 100) == pytest.approx((75, 130))


def test_what_is_not_computing_moves_the_upper_end_only():
    mine = run(1000, 1000)
    equal, unequal = (
        predict_stragglers(mine.program, RankSpread(0.02, own, 20, 4), Layout(8), Layout(64)) for own in (0.0, 0.2)
    )
    assert equal.likely_factor == unequal.likely_factor
    assert equal.max_factor < unequal.max_factor


def test_one_rank_loses_what_published_jobs_did():
    """With each doubling beyond a node of eight, half of that inside."""
    mine, unknown = run(1000, 1000), measure_spread(run(1000, 1000))
    found = [predict_stragglers(mine.program, unknown, Layout(1), Layout(ranks)) for ranks in (2, 8, 16, 32)]
    for one, doublings in zip(found, (0.5, 1.5, 2.5, 3.5), strict=True):
        assert one.likely_factor == pytest.approx((1 + LIKELY_DOUBLING_LOSS) ** doublings)
        assert one.max_factor == pytest.approx((1 + MAX_DOUBLING_LOSS) ** doublings)
    assert found[0].note is not None
    assert found[0].note.code == "stragglers-as-published"
    assert predict_stragglers(mine.program, unknown, Layout(1), Layout(1, pp=8)).likely_factor == 1


def test_what_the_steps_of_one_rank_tell_counts_if_it_is_more():
    mine = run(1000, 1000)
    little, much = (
        predict_stragglers(mine.program, RankSpread(one, one, 20, 1), Layout(8), Layout(64)) for one in (0.001, 0.2)
    )
    assert little.likely_factor == pytest.approx((1 + LIKELY_DOUBLING_LOSS) ** 3)
    assert much.likely_factor == pytest.approx(1 + 0.2 * (compute_expected_maximum(64) - compute_expected_maximum(8)))


def test_too_few_steps_of_two_ranks_tell_nothing_and_that_is_said():
    found = predict_stragglers(run(1000, 1000).program, RankSpread(0.0, 0.0, 1, 2), Layout(8), Layout(64))
    assert (found.likely_factor, found.max_factor) == (1, 1)
    assert found.note is not None
    assert found.note.code == "spread-unknown"


def test_copies_of_an_inference_do_not_wait_for_each_other():
    spread = RankSpread(0.02, 0.05, 20, 4)
    assert predict_stragglers(run(1000, trains=False).program, spread, Layout(8), Layout(64)) == StragglerEffect(
        relayout_error=RELAYOUT_ERROR
    )


def test_a_prediction_of_more_ranks_holds_it():
    steady, varying = (
        tk.predict(job(*steps).load(), cluster=CLUSTER, world_size=512)[CLUSTER]
        for steps in ((1000,) * 5, (1000, 1000, 1200, 900, 900))
    )
    factor = 0.95 * (
        1 + 0.1414 * (compute_expected_maximum(512) - compute_expected_maximum(8))
    )  # 950 us is the median step
    factor /= (1 + LIKELY_DOUBLING_LOSS) ** 6
    assert varying.step.step_time_us / steady.step.step_time_us == pytest.approx(factor, rel=0.02)
    assert varying.high_us > 1.2 * steady.high_us
    assert find_message(varying.notes, "stragglers-as-measured").values["after"] == 512


def test_the_slowest_of_fewer_ranks_may_come_earlier():
    """As far as the same number of more ranks would have it come later."""
    mine, spread = run(1000, 1000), RankSpread(0.02, 0.05, 20, 4)
    fewer, more = (
        predict_stragglers(mine.program, spread, Layout(4), Layout(2)),
        predict_stragglers(mine.program, spread, Layout(2), Layout(4)),
    )
    assert fewer.likely_factor == fewer.max_factor == 1
    assert 1 / more.max_factor < fewer.min_factor < 1 / more.likely_factor
    assert fewer.note is not None
    assert fewer.note.code == "fewer-stragglers"


def test_fewer_ranks_than_one_read_may_gain_what_published_jobs_lost():
    """A lone one waits for nobody, and its step has no waiting in it."""
    mine, unknown = run(1000, 1000), measure_spread(run(1000, 1000))
    assert predict_stragglers(mine.program, unknown, Layout(8), Layout(2)).min_factor == pytest.approx(
        (1 + MAX_DOUBLING_LOSS) ** -1
    )
    assert predict_stragglers(mine.program, unknown, Layout(8), Layout(1)) == StragglerEffect(
        relayout_error=RELAYOUT_ERROR
    )


def test_another_layout_misses_what_recorded_jobs_did_both_ways():
    wide = StragglerEffect(relayout_error=RELAYOUT_ERROR)
    assert wide.widen_interval(100, 100, 100) == pytest.approx((100 / (1 + RELAYOUT_ERROR), 100 * (1 + RELAYOUT_ERROR)))
    low, high = wide.widen_interval(100, 50, 200)
    assert 49 < low < 50 < 200 < high < 202
    assert StragglerEffect().widen_interval(100, 90, 110) == (90, 110)


@pytest.mark.parametrize("ranks", [1, 2, 16])
def test_the_same_gpu_with_other_ranks_is_a_prediction_with_an_interval(ranks):
    """Published and recorded jobs differ by more than nothing; as many ranks as there were are measured."""
    trace = job(1000, 1000, 1000).load()
    found = tk.predict(trace, cluster=CLUSTER, world_size=ranks)[CLUSTER]
    assert found.low_us * (1 + RELAYOUT_ERROR) <= found.step.step_time_us * 1.0001
    assert found.high_us >= found.step.step_time_us * (1 + RELAYOUT_ERROR) * 0.9999
    kept = tk.predict(trace, cluster="8xa100-sxm-80gb", world_size=8)["8xa100-sxm-80gb"]
    assert kept.low_us == pytest.approx(kept.high_us)
    assert "host-time-kept" not in list_codes(kept.notes)


def test_other_ranks_of_a_job_that_waits_for_its_host_may_meet_another_host():
    builder = TraceBuilder().op("autograd::engine::evaluate_function: x", 0, 1)
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 8}
    trace = builder.op("aten::slow", 2, 900).kernel("sgemm", 910, 20, launch=905).load()
    found = tk.predict(trace, cluster=CLUSTER, world_size=1)[CLUSTER]
    assert found.high_us > (HOST_SPEED_FACTOR - 0.03) * found.step.step_time_us
