"""Intervals of single kernels and of sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.columns import prepare_kernels
from predictors.gaussian_process import GaussianProcessCorrection, build_default_spread
from predictors.hardware import derive_hardware
from predictors.laws.law import LAWS
from predictors.model import split_by_law
from predictors.result import (
    SITUATIONS,
    classify_situation,
    classify_told,
    compute_centre,
    compute_half_width,
    sum_with_interval,
)
from predictors.weights_file import LawCalibration, LawConstants, Weights

BASE = {name: float(np.log(prior[0])) for name, prior in LAWS["gemm half"].priors.items()}
WEIGHTS = Weights(
    laws={"gemm half": LawConstants(BASE, gpu={"h100-sxm": {}, "l40s": {}})},
    intervals={"gemm half": {"base": 0.1, "sibling": 0.2, "class": 0.3, "new": 0.4}},
)


@pytest.mark.parametrize(
    ("gpu", "where", "width"),
    [
        ("h100-sxm", "base", 0.1),
        ("h200-sxm", "sibling", 0.2),
        ("a100-sxm-80gb", "class", 0.3),
        ("b200", "new", 0.4),
    ],
)
def test_an_interval_widens_with_the_distance_from_what_was_measured(gpu: str, where: str, width: float):
    assert classify_situation("gemm half", derive_hardware(load_gpu(gpu)), WEIGHTS) == where
    assert compute_half_width("gemm half", derive_hardware(load_gpu(gpu)), WEIGHTS) == width


def test_the_middle_of_an_interval_goes_by_the_same_cells():
    centres = {"gemm half": {"base": 0.01, "sibling": -0.02, "nothing": 0.03, "sibling to base, nothing told": 0.04}}
    widths = {"gemm half": WEIGHTS.intervals["gemm half"] | {"nothing": 0.1, "sibling to base, nothing told": 0.1}}
    weights = replace(WEIGHTS, intervals=widths, centres=centres)
    h100, h200, b200 = (derive_hardware(load_gpu(gpu)) for gpu in ("h100-sxm", "h200-sxm", "b200"))
    assert compute_centre("gemm half", h100, weights) == 0.01
    assert compute_centre("gemm half", h100, weights, "nothing") == 0.03
    assert compute_centre("gemm half", h100, weights, "nothing", "sibling") == 0.04
    assert compute_centre("gemm half", h200, weights, "nothing") == -0.02
    assert compute_centre("gemm half", b200, weights) == 0
    assert compute_centre("embedding", h100, weights) == 0


def test_a_vendor_that_nobody_fitted_takes_more_than_any_other_needs():
    arc = derive_hardware(load_gpu("arc-b580"))
    assert compute_half_width("gemm half", arc, WEIGHTS) == pytest.approx(2 * 0.4)
    amd = {**WEIGHTS.intervals, "gemm half on amd": {"base": 0.1, "new": 1.2}}
    assert compute_half_width("gemm half", arc, replace(WEIGHTS, intervals=amd)) == pytest.approx(1.25 * 1.2)
    unsure = {"gemm half": WEIGHTS.intervals["gemm half"] | {"new": 3.0}}
    assert compute_half_width("gemm half", arc, replace(WEIGHTS, intervals=unsure)) == 3.0
    own = {**WEIGHTS.intervals, "gemm half on intel": {"base": 0.1, "new": 0.5}}
    assert compute_half_width("gemm half", arc, replace(WEIGHTS, intervals=own)) == 0.5


def test_a_gpu_with_far_slower_matrix_units_is_no_sibling_where_they_matter():
    """An H20 has an H100's SMs with a quarter of the rate of their matrix units."""
    h20 = derive_hardware(load_gpu("h20"))
    measured = {law: replace(WEIGHTS.laws["gemm half"], gpu={"h100-sxm": {}}) for law in ("gemm half", "elementwise")}
    weights = replace(WEIGHTS, laws=measured)
    assert [classify_situation(law, h20, weights) for law in measured] == ["new", "sibling"]


def test_a_convolution_by_an_unknown_algorithm_is_less_sure_than_the_gemm_it_implies():
    work = {"dtype": "fp32", "m": 50176, "n": 64, "k": 576, "channels": 64}
    kernels = [
        {"family": "gemm"} | work,
        {"family": "conv", "winograd": True, "height": 56, "width": 56} | work,
        {"family": "conv", "winograd": False} | work,
    ]
    told = predict(pl.DataFrame(kernels, infer_schema_length=None), "v100-pcie-32gb")
    gemm, winograd, other = np.log(told["high_us"] / told["time_us"])
    assert gemm <= winograd < other
    assert other >= 0.6


def test_a_gpu_of_which_few_kernels_were_measured_is_as_unsure_as_one_left_out():
    laws = {name: replace(fitted, sparse=["h100-sxm"]) for name, fitted in WEIGHTS.laws.items()}
    assert classify_situation("gemm half", derive_hardware(load_gpu("h100-sxm")), replace(WEIGHTS, laws=laws)) == "new"


def test_widths_are_those_of_the_vendor():
    widths = WEIGHTS.intervals | {"gemm half on amd": dict.fromkeys(SITUATIONS, 0.8)}
    weights = replace(WEIGHTS, intervals=widths)
    assert compute_half_width("gemm half", derive_hardware(load_gpu("mi300x")), weights) == 0.8
    assert compute_half_width("gemm half", derive_hardware(load_gpu("b200")), weights) == 0.4
    assert compute_half_width("gemm half", derive_hardware(load_gpu("mi300x")), WEIGHTS) == 0.8


def test_a_family_nobody_measured_is_wide():
    assert compute_half_width("embedding", derive_hardware(load_gpu("h100-sxm")), WEIGHTS) >= 0.5


def test_errors_of_one_gpu_add_up_and_the_rest_averages_out():
    time, low, high = np.full(100, 10.0), np.full(100, 9.0), np.full(100, 11.0)
    assert sum_with_interval(time, low, high, shared=1.0) == pytest.approx((1000, 900, 1100))
    assert sum_with_interval(time, low, high, shared=0.0) == pytest.approx((1000, 990, 1010))
    _, some_low, some_high = sum_with_interval(time, low, high)
    assert 900 < some_low < 990
    assert 1010 < some_high < 1100


def test_families_err_together_only_as_far_as_a_clock_makes_them():
    """Two kernels of 10 +- 1: of one family the sum is 20 +- 2, of two 20 +- sqrt(0.8 x 2 + 0.2 x 4)."""
    time, low, high = np.full(2, 10.0), np.full(2, 9.0), np.full(2, 11.0)
    apart = np.sqrt(0.8 * 2 + 0.2 * 4)
    together = sum_with_interval(time, low, high, shared=1.0, family=np.array([0, 0]))
    assert together == pytest.approx((20, 18, 22))
    of_two = sum_with_interval(time, low, high, shared=1.0, family=np.array([0, 1]))
    assert of_two == pytest.approx((20, 20 - apart, 20 + apart))


def test_the_interval_of_one_kernel_is_its_own():
    assert sum_with_interval(np.array([10.0]), np.array([7.0]), np.array([16.0])) == pytest.approx((10, 7, 16))


def test_a_sum_of_nothing_is_nothing():
    assert sum_with_interval(np.array([]), np.array([]), np.array([])) == (0, 0, 0)


def test_less_told_of_the_software_widens_the_interval_unless_the_gpu_is_calibrated():
    widths = {"gemm half": {"base": 0.3, "calibrated": 0.35, "nothing": 0.4, "library": 0.0}}
    h100 = derive_hardware(load_gpu("h100-sxm"))
    weights = replace(WEIGHTS, intervals=widths)
    assert compute_half_width("gemm half", h100, weights) == 0.3
    assert compute_half_width("gemm half", h100, weights, "library") == 0.3
    assert compute_half_width("gemm half", h100, weights, "nothing") == pytest.approx(0.5)
    spread = build_default_spread("gemm half", [])
    known = LawCalibration(
        {}, gaussian_process=GaussianProcessCorrection(spread, np.zeros((len(spread.length), 1)), np.zeros(1))
    )
    calibrated = replace(weights, calibrated={("gemm half", "h100-sxm"): known})
    assert compute_half_width("gemm half", h100, calibrated, "nothing") == 0.35


def test_a_release_fitted_on_a_sibling_alone_is_as_unsure_as_a_sibling():
    gemm = {"family": "gemm", "dtype": "bf16", "m": 512, "n": 512, "k": 512, "framework": "vllm"}
    table = prepare_kernels(pl.DataFrame([gemm | {"version": one} for one in ("0.18.0", "0.19.0", "0.24.0")]))
    measured = {"h100-sxm": {"gemm/vllm/vllm": [1400.0, 2400.0]}, "h200-sxm": {"gemm/vllm/vllm": [1900.0]}}
    fitted = LawConstants(BASE, gpu={"h100-sxm": {}, "h200-sxm": {}}, releases=measured)
    weights, h100 = replace(WEIGHTS, laws={"gemm half": fitted}), derive_hardware(load_gpu("h100-sxm"))
    told = classify_told(split_by_law(table), h100, weights).map(str).tolist()
    assert told == ["between releases", "release of a sibling", "release"]
    assert [compute_half_width("gemm half", h100, weights, one) for one in told] == [0.1, 0.2, 0.1]


def test_what_a_row_tells_of_its_software():
    gemm = {"family": "gemm", "dtype": "bf16", "m": 512, "n": 512, "k": 512}
    told = [
        {}, {"framework": "cublas"}, {"framework": "vllm"}, {"framework": "vllm", "version": "0.19.0"},
        {"framework": "vllm", "version": "9.9.9"}, {"framework": "unheard of"},
        {"framework": "cublas", "engine": "vllm", "version": "0.19.0"}, {"framework": "cublas", "engine": "vllm"},
        {"framework": "vllm", "version": "0.24.0"}, {"framework": "triton", "engine": "vllm", "version": "0.24.0"},
        {"framework": "vllm", "version": "0.19.0", "batch": 8},
    ]  # fmt: skip
    unknown = {"framework": None, "engine": None, "version": None, "batch": 1}
    table = prepare_kernels(pl.DataFrame([gemm | unknown | one for one in told]))
    measured = {"gemm/vllm/vllm": [1900.0], "gemm/vllm/cublas": [2400.0], "batched gemm/vllm/vllm": [2400.0]}
    weights = replace(WEIGHTS, laws={"gemm half": LawConstants(BASE, releases={"h100-sxm": measured})})
    h100 = derive_hardware(load_gpu("h100-sxm"))
    assert classify_told(split_by_law(table), h100, weights).map(str).tolist() == [
        "nothing", "library", "engine", "release", "new release", "nothing",
        "new release", "engine and library", "engine and release", "new library", "new release",
    ]  # fmt: skip
