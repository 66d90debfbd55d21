"""Rates that were published of GPUs on which no kernel was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from predictors.columns import build_law_inputs, prepare_kernels
from predictors.corrections import SymmetricTrees
from predictors.laws.law import LAWS
from predictors.model import evaluate_law
from predictors.training.fit import LawFit, LawMeasurements
from predictors.training.published import RATE_GEMM_SIDE, RATE_SOURCE
from predictors.training.rates import settle_rates
from predictors.weights_file import LawConstants

LAW = "gemm half"
FLOPS = 2 * RATE_GEMM_SIDE**3


def rate(gpu: str, tflops: float) -> LawMeasurements:
    side = RATE_GEMM_SIDE
    row = pl.DataFrame({"family": ["gemm"], "dtype": ["bf16"], "m": [side], "n": [side], "k": [side]})
    told = {"gpu": pl.lit(gpu), "source": pl.lit(RATE_SOURCE), "latency_us": pl.lit(FLOPS / tflops / 1e6)}
    return LawMeasurements(gpu, prepare_kernels(row).with_columns(shape=pl.lit(1), **told))


def fit(correction: float, **rated: float) -> LawFit:
    """A law at its priors, measured on an A100 and an L40S, whose trees add the same to any kernel."""
    base = {name: math.log(median) for name, (median, _) in LAWS[LAW].priors.items()}
    offsets = {gpu: {"compute": value} for gpu, value in rated.items()}
    constants = LawConstants(base, gpu={"a100-sxm-80gb": {}, "l40s": {}}, rated=offsets, taught=["a100-sxm-80gb"])
    leaves = np.full((1, 2), correction, dtype=np.float32)
    trees = SymmetricTrees(np.zeros((1, 1), dtype=np.int16), np.zeros((1, 1), dtype=np.float32), leaves)
    return LawFit(LAW, constants, {}, trees, {})


def predicted_tflops(fitted: LawFit, part: LawMeasurements) -> float:
    time_us = evaluate_law(build_law_inputs(part.table), LAW, part.hardware, fitted.weights)[1]
    return float(FLOPS / time_us[0] / 1e6)


@pytest.mark.parametrize("correction", [-0.2, 0.0, 0.3])
def test_a_published_rate_is_met_whatever_the_correction_of_other_gpus_adds(correction: float):
    a100 = rate("a100-sxm-80gb", 250.0)
    settled = settle_rates(start := fit(correction, a40=0.0), [a40 := rate("a40", 170.0), a100])
    usual = predicted_tflops(start, a100) / 250
    assert predicted_tflops(settled, a40) == pytest.approx(170 * usual, rel=0.02)
    assert settled.fitted.gpu == start.fitted.gpu


def test_where_power_suffices_all_of_a_published_rate_is_kept():
    """An H20's matrix units are a quarter of the others of Hopper."""
    start = fit(0.2, h20=0.0)
    start = replace(start, fitted=replace(start.fitted, gpu=start.fitted.gpu | {"h100-sxm": {}}))
    h20, h100 = rate("h20", 120.0), rate("h100-sxm", 600.0)
    settled = settle_rates(start, [h20, h100])
    assert predicted_tflops(settled, h20) == pytest.approx(120, rel=0.02)
    larger_memory = replace(h20, gpu="h20-141gb")
    assert predicted_tflops(settled, larger_memory) == pytest.approx(120, rel=0.02)


def test_a_measured_sibling_says_more_than_a_rate():
    """The A800 is an A100 with slower links."""
    start = fit(0.0, **{"a800-sxm-80gb": 0.0})
    assert settle_rates(start, [rate("a800-sxm-80gb", 100.0)]).fitted.rated == start.fitted.rated


def test_without_rates_nothing_moves():
    start = fit(0.1)
    assert replace(settle_rates(start, [])) == start


def test_a_rate_below_the_predicted_one_slows_nothing():
    """A run of large products may be throttled."""
    start = fit(0.0, h20=0.0)
    assert settle_rates(start, [rate("h20", 60.0), rate("a100-sxm-80gb", 250.0)]).fitted.rated == start.fitted.rated
