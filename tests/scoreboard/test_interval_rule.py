"""By how much outcomes change intervals. A score of 1 lies at the interval's end."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.scoreboard.interval_rule import MIN_OUTCOMES_TO_NARROW, SHIPPED_SCORES, compute_width_factor

SCORES = st.floats(0, 20, allow_nan=False)
FEW = MIN_OUTCOMES_TO_NARROW - 1


def test_the_shipped_scores_are_those_of_a_normal_error_whose_90_pct_quantile_is_one():
    sd = 1 / NormalDist().inv_cdf(0.95)
    assert [NormalDist(0, sd).cdf(score) - NormalDist(0, sd).cdf(-score) for score in SHIPPED_SCORES] == pytest.approx(
        [place / 20 for place in range(1, 20)]
    )
    assert compute_width_factor([]) == 1


@given(st.lists(st.floats(0, 1), max_size=FEW))
def test_few_outcomes_inside_change_nothing(scores):
    assert compute_width_factor(scores) == 1


@given(st.lists(SCORES, max_size=FEW))
def test_few_outcomes_never_narrow(scores):
    assert compute_width_factor(scores) >= 1


@given(st.lists(SCORES, max_size=60), st.floats(0, 20))
def test_another_miss_never_narrows(scores, further):
    factor = compute_width_factor(scores)
    assert compute_width_factor([*scores, factor + further]) >= factor


@given(st.lists(SCORES, min_size=1, max_size=60), st.data())
def test_a_larger_error_never_narrows(scores, data):
    place = data.draw(st.integers(0, len(scores) - 1))
    larger = [*scores]
    larger[place] += data.draw(st.floats(0, 5))
    assert compute_width_factor(larger) >= compute_width_factor(scores)


@given(st.lists(SCORES, min_size=MIN_OUTCOMES_TO_NARROW, max_size=60))
def test_never_narrower_than_nine_in_ten_of_the_outcomes_need(scores):
    factor = compute_width_factor(scores)
    assert sum(score <= factor for score in scores) >= 0.9 * len(scores)


def test_many_exact_predictions_narrow_and_as_many_misses_widen():
    assert compute_width_factor([0.5] * 9) == 1  # of 28 scores the 27th: of the shipped ones, two are larger
    assert compute_width_factor([0.5] * 200) == 0.5
    assert compute_width_factor([3.0]) == pytest.approx(SHIPPED_SCORES[-1])
    assert compute_width_factor([3.0] * 3) == 3


@pytest.mark.parametrize("outcomes", [9, 20, 100])
@pytest.mark.parametrize("spread", [0.7, 1.0, 2.0])
def test_nine_in_ten_later_outcomes_lie_inside(outcomes, spread):
    """Errors that are ``spread`` times as large as the shipped intervals are made for; fixed seed."""
    random = np.random.default_rng(7)
    drawn = np.abs(random.normal(0, spread / NormalDist().inv_cdf(0.95), (3000, outcomes + 1)))
    inside = np.mean([row[-1] <= compute_width_factor(row[:-1].tolist()) for row in drawn])
    assert inside >= 0.885
    if outcomes == 100:
        assert inside <= 0.93
