"""Symmetric trees: evaluated as defined, and fitted so that they explain what they are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from predictors.corrections import SymmetricTrees
from predictors.training.boost import boost
from predictors.weights_file import Weights, load_weights, save_weights


def test_a_tree_is_its_definition():
    trees = SymmetricTrees(
        feature=np.array([[0, 1], [1, 0]], dtype=np.int16),
        threshold=np.array([[0.5, 2.0], [1.0, 0.0]], dtype=np.float32),
        leaf=np.array([[1, 2, 3, 4], [10, 20, 30, 40]], dtype=np.float32),
    )
    features = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 3.0]], dtype=np.float32)
    # First tree: bit 0 is feature 0 > 0.5, bit 1 is feature 1 > 2; second: bit 0 is feature 1 > 1, bit 1 feature 0 > 0.
    assert trees.predict(features).tolist() == [1 + 10, 2 + 30, 4 + 40]


def test_boosting_explains_a_step_and_ignores_noise():
    draw = np.random.default_rng(0)
    features = draw.normal(size=(4, 3000)).astype(np.float32)
    target = np.where(features[1] > 0.3, 0.5, -0.2) * np.where(features[3] > 0, 1.0, 0.2)
    trees = boost(features, target + draw.normal(scale=0.05, size=3000), np.ones(3000), trees=80, depth=3)
    assert np.abs(trees.predict(features) - target).mean() < 0.03
    assert np.isin(trees.feature[:10], [1, 3]).mean() > 0.8


def test_runs_that_something_slowed_down_are_not_followed():
    features = np.random.default_rng(0).normal(size=(2, 2000)).astype(np.float32)
    slowed = np.arange(2000) % 5 == 0
    trees = boost(features, np.where(slowed, 1.6, 0.1), np.ones(2000), trees=80, depth=3)
    assert np.abs(trees.predict(features) - 0.1).mean() < 0.05


def test_passes_over_the_leaves_explain_more_with_the_same_splits():
    features = np.random.default_rng(0).normal(size=(6, 1000)).astype(np.float32)
    target = 0.2 * np.sin(3 * features[0]) * features[1]
    once, corrected = (boost(features, target, np.ones(1000), trees=30, depth=4, passes=p) for p in (0, 5))
    assert np.array_equal(once.feature, corrected.feature)
    missed = [np.abs(trees.predict(features) - target).mean() for trees in (once, corrected)]
    assert missed[1] < 0.95 * missed[0]


def test_boosting_is_deterministic_and_survives_constant_features():
    features = np.ones((2, 50), dtype=np.float32)
    first, again = (boost(features, np.full(50, 0.3), np.ones(50), trees=5, depth=2) for _ in range(2))
    assert np.array_equal(first.leaf, again.leaf)
    assert np.isfinite(first.predict(features)).all()


@pytest.mark.parametrize("rows", [1, 300, 3000])
def test_trees_that_ask_the_same_questions_in_any_order_are_their_definition(rows: int):
    draw = np.random.default_rng(0)
    trees = SymmetricTrees(
        feature=draw.integers(0, 3, (40, 4)).astype(np.int16),
        threshold=draw.integers(0, 4, (40, 4)).astype(np.float32) / 4,
        leaf=draw.integers(-9, 9, (40, 16)).astype(np.float32),
    )
    features = (draw.integers(0, 5, (3, rows)) / 4).astype(np.float32)
    bits = features[trees.feature] > trees.threshold[..., None]
    leaves = (bits * 2 ** np.arange(4)[:, None]).sum(axis=1)
    assert len(trees.unique_splits[0]) == 12
    assert np.array_equal(trees.predict(features), np.take_along_axis(trees.leaf, leaves, axis=1).sum(axis=0))


def test_stored_trees_are_those_that_were_saved(tmp_path: Path):
    grown = {
        f"{architecture}/norm": SymmetricTrees(
            np.full((2, 1), i, np.int16), np.ones((2, 1), np.float32), np.eye(2, dtype="f4")
        )
        for i, architecture in enumerate(("9", "all"))
    }
    save_weights(Weights({}, grown), tmp_path)
    stored = load_weights(tmp_path).corrections
    assert list(stored) == ["9/norm", "all/norm"]
    assert stored.get("8.0/norm") is None
    assert [trees.feature.max() for trees in stored.values()] == [0, 1]
    assert np.array_equal(stored["9/norm"].leaf, np.eye(2))


def test_boosted_trees_are_stored_without_loss_in_a_byte_a_leaf(tmp_path: Path):
    features = np.random.default_rng(0).normal(size=(4, 2000)).astype(np.float32)
    trees = boost(features, 0.2 * np.sin(3 * features[0]), np.ones(2000), trees=40, depth=5, passes=2)
    save_weights(Weights({}, {"9/norm": trees}), tmp_path)
    stored = load_weights(tmp_path).corrections["9/norm"]
    assert np.array_equal(stored.leaf, trees.leaf)
    assert np.array_equal(stored.predict(features), trees.predict(features))
    # float32 holds every sum: one at a time, a few or many rows, forwards or backwards.
    assert np.array_equal(trees.predict(features)[:3], trees.predict(features[:, :3].copy()))
    backwards = SymmetricTrees(trees.feature[::-1], trees.threshold[::-1].copy(), trees.leaf[::-1])
    assert np.array_equal(backwards.predict(features), trees.predict(features))
    with np.load(tmp_path / "corrections.npz") as arrays:
        assert arrays["9/norm/leaf"].dtype == np.int8
        assert arrays["9/norm/question"].shape == (40, 5)
