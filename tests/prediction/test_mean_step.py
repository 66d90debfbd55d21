"""A run of many steps lasts and costs by the mean step, here and there."""

from dataclasses import replace
from math import exp, hypot, log

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tests.codes import find_message
from tests.prediction.test_energy import STEP
from tests.report.decisions import STEP_US, make_source, make_step
from tracekit.prediction.intervals import (
    KernelSums,
    bound_mean_step,
    combine_ends,
    compute_end_factors,
    number_families,
)
from tracekit.prediction.question import Question, RankBy, WholeRun
from tracekit.reporting.sections.targets import build_decision
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace


def test_the_means_interval_is_that_of_its_replays_moved_as_the_medians():
    """Medians of 8, 10 and 13, widened to 7 and 15; means of 12, 15 and 20."""
    likely, *ends = [replace(STEP, step_time_us=median, mean_us=mean) for median, mean in ((10, 15), (8, 12), (13, 20))]
    assert bound_mean_step(likely, [tuple(ends)], None, 15.0, (7.0, 15.0)) == pytest.approx((12 * 7 / 8, 20 * 15 / 13))
    none = replace(STEP, step_time_us=0.0, mean_us=0.0)
    assert bound_mean_step(none, [(none, none)], None, 0.0, (0.0, 0.0)) == (0.0, 0.0)


def test_independent_unknowns_add_up_in_squares():
    """Another host makes 8 to 13 of 10, other kernels 9 to 11; one that changes nothing adds nothing."""
    low, high = combine_ends(10.0, [(8.0, 13.0), (9.0, 11.0)])
    assert low == pytest.approx(10 * exp(-hypot(log(10 / 8), log(10 / 9))))
    assert high == pytest.approx(10 * exp(hypot(log(1.3), log(1.1))))
    assert combine_ends(10.0, [(8.0, 13.0), (10.0, 10.0)]) == pytest.approx((8, 13))
    assert combine_ends(10.0, [(8.0, 13.0)]) == (8, 13)
    assert combine_ends(10.0, []) == (10, 10)


def test_a_step_may_be_shorter_the_longer_its_kernels_take():
    assert combine_ends(10.0, [(10.5, 9.0), (10.0, 10.0)]) == pytest.approx((9, 10.5))
    assert combine_ends(10.0, [(0.0, 12.0), (9.0, 20.0)]) == (0, 20)


def accumulated(steps: int = 9) -> Trace:
    """Steps of 100, with 300 more in every fourth, the optimizer's; the first is not measured."""
    builder, at = TraceBuilder(), 0.0
    for number in range(steps):
        updates = number % 4 == 3
        busy = 380 if updates else 80
        builder.step(number, at, 20 + busy).kernel("gemm", at + 10, 80, launch=at + 2)
        if updates:
            builder.kernel("multi_tensor_apply_kernel", at + 90, 300, launch=at + 6)
        builder.call("cudaDeviceSynchronize", at + 12, busy + 3)
        at += 20 + busy
    return builder.load()


def test_a_run_takes_the_mean_step_here_and_there():
    """Six of 100 and two of 400: 175 in the mean, so that a million steps take 175 s."""
    predicted = tk.predict(accumulated(), gpu="a100-sxm-80gb", price="2", steps_to_run="1M")
    target, report = predicted["a100-sxm-80gb"], tk.report(predicted)
    assert (report.source.step_time_us, report.source.mean_us) == (100, 175)
    assert (target.step.step_time_us, target.step.mean_us) == (100, 175)
    assert report.decision is not None
    here, (there,) = report.decision.here, report.decision.targets
    assert here.run_hours == pytest.approx(175 / 3600)
    assert there.run_hours.likely == pytest.approx(175 / 3600)  # type: ignore[union-attr]
    assert there.dollars.likely == pytest.approx(2 * 1000 * 175e-6 / 3600)  # type: ignore[union-attr]
    assert target.dollars_per_1000_steps == pytest.approx(2 * 1000 * 175e-6 / 3600)
    assert find_message(report.warnings, "steps-differ").values["mean_us"] == 175


def test_the_means_interval_holds_it_and_scales_with_its_parts():
    target = tk.predict(accumulated(), gpu="h100-sxm")["h100-sxm"]
    assert target.mean_low_us < target.step.mean_us < target.mean_high_us
    assert target.step.mean_us > 1.5 * target.step.step_time_us


def decide(question: Question, **changed: object):
    """Decide on a target of half the median step, whose mean is as long as the trace's: 2 steps."""
    step = make_step("h100-sxm", 0.5, 0.4, 0.6, price=3.0)
    mean = {"mean_low_us": 1.8 * STEP_US, "mean_high_us": 2.4 * STEP_US}
    target = replace(step, step=replace(step.step, mean_us=2 * STEP_US), **mean)
    return build_decision(make_source(price=1.0, mean_us=2 * STEP_US, **changed), [target], question)


def test_money_and_hours_are_of_the_mean_step_and_speed_of_the_median_one():
    """A step of an hour's thousandth: 5,000 of 2 take 10 hours at both, whatever the median step."""
    decision = decide(Question(RankBy.DOLLARS, WholeRun(5000, "steps")))
    assert decision is not None
    here, (there,) = decision.here, decision.targets
    assert there.speedup.ordered == pytest.approx((1 / 0.6, 2, 2.5))
    assert there.run_hours.ordered == pytest.approx((9, 10, 12))
    assert (here.run_hours, here.run_dollars) == pytest.approx((10, 10))
    assert there.run_dollars.ordered == pytest.approx((27, 30, 36))
    assert there.break_even.ordered == pytest.approx((10 / 12, 1, 10 / 9))
    assert there.gpu_hours.ordered == pytest.approx((1.8, 2, 2.4))
    assert there.joules.likely == pytest.approx(100 * 0.5 * 2 / 0.5)


def test_kernels_and_cpu_that_pace_the_step_in_turn_shorten_it_together():
    """Neither alone makes 10 ms shorter, both make it 8: 10 / exp(log(10/8) / sqrt(2))."""
    assert combine_ends(10.0, [(10.0, 11.0), (10.0, 13.0)], 8.0)[0] == pytest.approx(8.540, abs=1e-3)


def test_equal_factors_have_the_same_lower_end_together_as_apart():
    """Two parts that each make 10 ms 0.9 times as long make it 8.1."""
    apart = combine_ends(10.0, [(9.0, 11.0), (9.0, 11.0)])
    assert combine_ends(10.0, [(9.0, 11.0), (9.0, 11.0)], 8.1) == pytest.approx(apart)


def test_families_have_numbers_of_their_own():
    families = pl.DataFrame({"family": ["gemm", "conv", "gemm", None, "unheard of"]})
    gemm, conv, again, *others = families.select(number_families())["family"].to_list()
    assert gemm == again
    assert len({gemm, conv, 0}) == 3
    assert others == [0, 0]


def test_the_ends_of_a_sum_go_by_what_its_families_share():
    """Two kernels of 10 +- 1 that share all: of one family the sum is 20 +- 2, of two 20 +- sqrt(0.8 x 2 + 0.2 x 4)."""
    time, low, high = np.full(2, 10e6), np.full(2, 9e6), np.full(2, 11e6)
    for family, apart in (([1, 1], 2.0), ([1, 2], np.sqrt(2.4))):
        ends = compute_end_factors(KernelSums(time, low, high, time, np.array(family)), known_bias=1.0)
        assert ends == pytest.approx((1 - apart / 20, 1 + apart / 20))
