"""Calibration: a few measurements move a GPU's offsets to where they say, and no further."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.calibrate import calibrate
from predictors.errors import KernelTableError
from predictors.fitted import load_weights, save_weights

GPU = load_gpu("h200-sxm")
SHAPES = pl.DataFrame({"m": [1024, 2048, 4096, 8192] * 5, "n": 4096, "k": [1024, 2048, 4096, 8192, 12288] * 4})
KERNELS = SHAPES.with_columns(family=pl.lit("gemm"), dtype=pl.lit("bf16"))


def after(kernels: pl.DataFrame, tmp_path) -> np.ndarray:
    save_weights(calibrate(kernels, GPU, load_weights()), tmp_path)
    return predict(KERNELS, GPU, weights=tmp_path)["time_us"].to_numpy()


def test_a_gpu_that_runs_slower_is_predicted_slower(tmp_path):
    before = predict(KERNELS, GPU)["time_us"].to_numpy()
    noise = np.random.default_rng(0).normal(scale=0.05, size=len(before))
    now = after(KERNELS.with_columns(measured_us=pl.Series(before * 1.3 * np.exp(noise))), tmp_path)
    assert np.median(now / before) == pytest.approx(1.3, abs=0.06)


def test_one_wild_measurement_hardly_matters(tmp_path):
    before = predict(KERNELS, GPU)["time_us"].to_numpy()
    wild = np.where(np.arange(len(before)) == 3, 20 * before, before)
    now = after(KERNELS.with_columns(measured_us=pl.Series(wild)), tmp_path)
    assert np.median(now / before) == pytest.approx(1.0, abs=0.03)


def test_other_laws_stay_as_they_are(tmp_path):
    norm = pl.DataFrame({"family": ["norm"], "dtype": ["bf16"], "bytes": [1e8]})
    before = predict(norm, GPU)["time_us"][0]
    after(KERNELS.with_columns(measured_us=pl.lit(1000.0)), tmp_path)
    assert predict(norm, GPU, weights=tmp_path)["time_us"][0] == pytest.approx(before, rel=1e-3)


def test_nothing_to_calibrate_with_is_an_error():
    with pytest.raises(KernelTableError, match="nothing to calibrate with"):
        calibrate(KERNELS, GPU, load_weights())
