"""What a time measured on one GPU says of the same kernel on another."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from predictors import predict
from predictors.gpu_names import load_gpu
from predictors.hardware import derive_hardware
from predictors.result import compute_half_width
from predictors.training.carried import collect_carried_errors, fit_exponents, pair_kernels
from predictors.training.views import VIEWS, get_spread_column, get_time_column
from predictors.training.widths import fit_intervals
from predictors.weights_file import LawConstants, Weights

NEWEST = {"law": "prefill", "situation": "new release", "framework": "fa3", "engine": "vllm", "release": 2400.0}
VIEW_COLUMNS = [get_time_column(view) for view in VIEWS]
UNTOLD = dict.fromkeys([*VIEW_COLUMNS, "source_ratio", "kinship"])
SPREADS = dict.fromkeys((get_spread_column(view) for view in ("model", *VIEWS)), pl.lit(0.0))
TEXT = {"kinship": pl.String, **dict.fromkeys([*VIEW_COLUMNS, "source_ratio"], pl.Float64)}


def score(missed: dict[str, list[float]]) -> pl.DataFrame:
    """Kernels of 100 us, so much off on each GPU, as logarithms, where their library is told."""
    rows = [
        NEWEST
        | UNTOLD
        | {"gpu": gpu, "shape": i, "dtype": "bf16", "model_us": 100.0, "latency_us": 100 * np.exp(error)}
        for gpu, errors in missed.items()
        for i, error in enumerate(errors)
    ]
    return pl.DataFrame(rows, schema_overrides=TEXT).with_columns(library_us="model_us", **SPREADS)


def test_kernels_are_paired_with_the_same_on_other_gpus() -> None:
    pairs = pair_kernels(score({"h100-sxm": [0.1, 0.2], "h200-sxm": [0.3, 0.4], "l40s": [0.5]}))
    of_h200 = pairs.filter(pl.col("gpu") == "h200-sxm").sort("missed", "kinship")
    rounded = of_h200.select("kinship", pl.col("missed", "missed_there").round(6))
    assert rounded.rows() == [("other", 0.3, 0.5), ("sibling", 0.3, 0.1), ("sibling", 0.4, 0.2)]


def test_an_exponent_is_what_siblings_miss_alike() -> None:
    """What the H200 misses is 0.8 of what the H100 does, give or take 0.05: so much is left when it is carried."""
    there = np.tile([0.2, -0.3, 0.1, 0.4], 60)
    off = np.tile([0.05, -0.05], 120)
    pairs = pair_kernels(score({"h100-sxm": [*there], "h200-sxm": [*(0.8 * there + off)]}))
    pairs = pairs.filter(pl.col("gpu") == "h200-sxm")
    exponents = fit_exponents(pairs)
    assert exponents["prefill"]["sibling"] == pytest.approx(0.8, abs=0.05)
    errors = collect_carried_errors(pairs, exponents)
    assert list(errors) == [("prefill", ("sibling", "new release", "library"))]
    left = errors["prefill", ("sibling", "new release", "library")]["h200-sxm"]
    assert np.median(np.abs(left)) == pytest.approx(0.05, abs=0.02)


def test_a_carried_time_in_the_base_is_as_sure_as_of_a_new_release() -> None:
    there = np.tile([0.5, -0.5], 120)
    rows = score({"h100-sxm": [*there], "h200-sxm": [*there]})
    fitted = rows.with_columns(situation=pl.lit("base"), model_us="latency_us")
    widths = fit_intervals(pl.concat([rows, fitted])).widths["prefill"]
    assert widths["sibling to base, library told"] == pytest.approx(0, abs=1e-6)
    assert widths["library"] > 0.5


def test_a_carried_time_has_its_own_width() -> None:
    laws = {"gemm half": LawConstants({}, gpu={"h100-sxm": {}, "h200-sxm": {}})}
    weights = Weights(
        laws, intervals={"gemm half": {"base": 0.3, "nothing": 0.4, "sibling to base, nothing told": 0.1}}
    )
    h200 = derive_hardware(load_gpu("h200-sxm"))
    assert compute_half_width("gemm half", h200, weights, "nothing", "sibling") == 0.1
    assert compute_half_width("gemm half", h200, weights, "nothing", "other") == pytest.approx(0.5)
    assert compute_half_width("gemm half", h200, weights, "nothing") == pytest.approx(0.5)


def test_a_measured_time_narrows_the_interval() -> None:
    row = {"family": "attention", "dtype": "bf16", "heads": 32, "kv_heads": 8, "q_len": 4096, "kv_len": 4096}
    row |= {"head_dim": 128, "causal": True, "framework": "fa3", "paged": True}
    shape = predict(pl.DataFrame([row]), "h200-sxm")
    measured = predict(pl.DataFrame([row | {"measured_us": 500.0}]), "h200-sxm", source_gpu="h100-sxm")
    assert (measured["high_us"] / measured["low_us"])[0] < (shape["high_us"] / shape["low_us"])[0]
