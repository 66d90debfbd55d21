import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from predictors.training.boost import boost
from tests.validation.estimator import SymmetricTreesRegressor

pytestmark = pytest.mark.heavy

RANDOM_ROWS = "each tree sees rows drawn at random, so that repeating a row isn't the same as weighting it"
EXPECTED_FAILURES = {"check_sample_weight_equivalence_on_dense_data": RANDOM_ROWS}


@parametrize_with_checks(
    [SymmetricTreesRegressor(trees=100, huber=1.0, ridge=1.0, depth=3)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_the_regressor_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def groups():
    """Three groups, as kernels of three GPUs: a step that all share, and noise."""
    draw = np.random.default_rng(0)
    features = draw.normal(size=(1500, 4)).astype(np.float32)
    target = np.where(features[:, 1] > 0.3, 0.5, -0.2) * np.where(features[:, 3] > 0, 1.0, 0.2)
    return features, target + draw.normal(scale=0.05, size=1500), np.arange(1500) % 3


def test_it_fits_what_the_booster_fits(groups):
    features, target, _ = groups
    regressor = SymmetricTreesRegressor(trees=20, depth=3).fit(features, target)
    trees = boost(
        np.ascontiguousarray(features.T), target, np.ones(1500), trees=20, depth=3, rate=0.12, huber=0.3, ridge=20.0
    )
    assert np.array_equal(regressor.correction_.leaf, trees.leaf)
    assert np.array_equal(regressor.predict(features), trees.predict(np.ascontiguousarray(features.T)))


def test_groups_left_out_are_predicted_as_well_as_by_scikit_learn(groups):
    features, target, group = groups
    own, other = (
        cross_val_score(
            regressor, features, target, groups=group, cv=LeaveOneGroupOut(), scoring="neg_median_absolute_error"
        ).mean()
        for regressor in (SymmetricTreesRegressor(trees=80, depth=3), HistGradientBoostingRegressor(max_iter=80))
    )
    assert own > 1.2 * other
