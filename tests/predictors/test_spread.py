"""How far GPUs left out are off: learned from blocks of kernels, kept in the weights, tells what to measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

pytest.importorskip("scipy")

from predictors.calibrate import LawObservations, fit_offsets, list_adjustable_constants
from predictors.gaussian_process import GaussianProcessCorrection, build_default_spread, list_axes
from predictors.laws.law import LAWS
from predictors.training.calibration import select_most_informative
from predictors.training.fit_spread import ErrorBlock, fit_spread
from predictors.weights_file import Weights, load_weights, save_weights

LAW = "gemm half"
USUAL = build_default_spread(LAW, LAWS[LAW].priors)
DRAW = np.random.default_rng(0)


def drawn(kernels: int, noise: float, compute: float) -> ErrorBlock:
    """Kernels on a GPU whose compute rate is off by `compute` of the prior's, and that are noisy beside."""
    places = np.zeros((len(list_axes(LAW)), kernels))
    places[[list_axes(LAW).index("m"), list_axes(LAW).index("n")]] = DRAW.normal(scale=3.0, size=(2, kernels))
    slopes = np.zeros((kernels, len(list_adjustable_constants(LAW)) + 1))
    slopes[:, list_adjustable_constants(LAW).index("compute")] = -1.0
    smooth = DRAW.multivariate_normal(np.zeros(kernels), USUAL.compute_covariance(places, places))
    return ErrorBlock(places, smooth - compute * DRAW.normal() + DRAW.normal(scale=noise, size=kernels), slopes)


def test_what_was_put_in_comes_out():
    spread = fit_spread(LAW, [drawn(40, noise=0.05, compute=0.6) for _ in range(10)])
    assert spread.noise == pytest.approx(0.05, rel=0.5)
    assert spread.amplitude == pytest.approx(USUAL.amplitude, rel=0.5)
    assert 0.35 < spread.offset["compute"] < 1.0
    assert spread.offset["memory"] == pytest.approx(0.15, rel=0.1)  # nothing is known of it


def test_kernels_unlike_those_already_chosen_are_measured_next():
    corners = np.repeat(np.array([0.0, 40.0, 80.0]), [20, 5, 5])
    places = np.tile(corners, (len(list_axes(LAW)), 1)) + DRAW.normal(scale=0.02, size=(len(list_axes(LAW)), 30))
    block = ErrorBlock(places, np.zeros(30), np.zeros((30, len(list_adjustable_constants(LAW)) + 1)))
    sure = replace(USUAL, noise=0.02)
    chosen = select_most_informative(block, sure, sure.get_offset_sds(list_adjustable_constants(LAW)), 6, np.arange(30))
    assert len(set(chosen)) == 6
    assert set(corners[chosen[:3]]) == {0.0, 40.0, 80.0}
    assert corners[chosen[0]] == 0.0  # that tells of twenty


def test_spreads_are_kept_in_the_weights(tmp_path):
    save_weights(Weights({}, spreads={LAW: USUAL}), tmp_path)
    assert load_weights(tmp_path).get_spread(LAW) == USUAL
    assert load_weights(tmp_path).get_spread("conv half") == USUAL  # borrowed


def test_a_law_of_which_nothing_was_left_out_is_calibrated_as_usual():
    law = "optimizer"  # whose floor no measurement on one GPU moves
    spread = Weights({}).get_spread(law)
    block = ErrorBlock(
        np.zeros((len(list_axes(law)), 3)), np.zeros(3), np.zeros((3, len(list_adjustable_constants(law)) + 1))
    )
    assert (
        len(
            select_most_informative(
                block, spread, spread.get_offset_sds(list_adjustable_constants(law)), 2, np.arange(3)
            )
        )
        == 2
    )


def test_without_offsets_a_calibration_is_scikit_learns_gaussian_process():
    draw = np.random.default_rng(1)
    axes = list_axes("gemm half")
    lengths = dict(zip(axes, draw.uniform(1.0, 4.0, len(axes)), strict=True))
    spread = replace(build_default_spread("gemm half", ("compute",)), length=lengths)
    measured, others = draw.normal(size=(2, len(axes), 20))
    errors = draw.normal(scale=0.05, size=20)
    observed = LawObservations(measured, errors, lambda offset: np.zeros(20))
    offset, weight = fit_offsets(observed, spread, spread.get_offset_sds(("compute",)))
    scikit_learns = GaussianProcessRegressor(
        ConstantKernel(spread.amplitude**2) * Matern([lengths[axis] for axis in axes], nu=1.5),
        alpha=spread.noise**2,
        optimizer=None,
    ).fit(measured.T, errors)
    assert not offset.any()
    assert GaussianProcessCorrection(spread, measured, weight).predict(others) == pytest.approx(
        scikit_learns.predict(others.T)
    )
