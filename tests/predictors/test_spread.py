"""How far GPUs left out are off: learned from blocks of kernels, kept in the weights, tells what to measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("scipy")

from predictors.calibrate import constants_of
from predictors.fitted import Weights, load_weights, save_weights
from predictors.law import LAWS
from predictors.surface import axes, usual_spread
from predictors.training.calibration import most_telling
from predictors.training.fit_spread import Block, fit_spread

LAW = "gemm half"
USUAL = usual_spread(LAW, LAWS[LAW].priors)
DRAW = np.random.default_rng(0)


def drawn(kernels: int, noise: float, compute: float) -> Block:
    """Kernels on a GPU whose compute rate is off by `compute` of the prior's, and that are noisy beside."""
    places = np.zeros((len(axes(LAW)), kernels))
    places[[axes(LAW).index("m"), axes(LAW).index("n")]] = DRAW.normal(scale=3.0, size=(2, kernels))
    slopes = np.zeros((kernels, len(constants_of(LAW)) + 1))
    slopes[:, constants_of(LAW).index("compute")] = -1.0
    smooth = DRAW.multivariate_normal(np.zeros(kernels), USUAL.alike(places, places))
    return Block(places, smooth - compute * DRAW.normal() + DRAW.normal(scale=noise, size=kernels), slopes)


def test_what_was_put_in_comes_out():
    spread = fit_spread(LAW, [drawn(40, noise=0.05, compute=0.6) for _ in range(10)])
    assert spread.noise == pytest.approx(0.05, rel=0.5)
    assert spread.amplitude == pytest.approx(USUAL.amplitude, rel=0.5)
    assert 0.35 < spread.offset["compute"] < 1.0
    assert spread.offset["memory"] == pytest.approx(0.15, rel=0.1)  # nothing is known of it


def test_kernels_unlike_those_already_chosen_are_measured_next():
    corners = np.repeat(np.array([0.0, 40.0, 80.0]), [20, 5, 5])
    places = np.tile(corners, (len(axes(LAW)), 1)) + DRAW.normal(scale=0.02, size=(len(axes(LAW)), 30))
    block = Block(places, np.zeros(30), np.zeros((30, len(constants_of(LAW)) + 1)))
    sure = replace(USUAL, noise=0.02)
    chosen = most_telling(block, sure, sure.sd(constants_of(LAW)), 6, np.arange(30))
    assert len(set(chosen)) == 6
    assert set(corners[chosen[:3]]) == {0.0, 40.0, 80.0}
    assert corners[chosen[0]] == 0.0  # that tells of twenty


def test_spreads_are_kept_in_the_weights(tmp_path):
    save_weights(Weights({}, spreads={LAW: USUAL}), tmp_path)
    assert load_weights(tmp_path).spread(LAW) == USUAL
    assert load_weights(tmp_path).spread("conv half") == USUAL  # borrowed


def test_a_law_of_which_nothing_was_left_out_is_calibrated_as_usual():
    law = "optimizer"  # whose floor no measurement on one GPU moves
    spread = Weights({}).spread(law)
    block = Block(np.zeros((len(axes(law)), 3)), np.zeros(3), np.zeros((3, len(constants_of(law)) + 1)))
    assert len(most_telling(block, spread, spread.sd(constants_of(law)), 2, np.arange(3))) == 2
