"""What a time measured on one GPU says of the same kernel on another."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from predictors import predict
from predictors.gpu_names import load_gpu
from predictors.hardware import derive_hardware
from predictors.result import add_shared_error, compute_centre, compute_half_width, compute_shared_fraction
from predictors.training.carried import collect_carried_errors, fit_exponents, pair_kernels
from predictors.training.shared_errors import fit_slowness_error
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


def test_between_unlike_gpus_a_measurement_narrows_nothing() -> None:
    laws = {"gemm half": LawConstants({}, gpu={"h100-sxm": {}, "h200-sxm": {}})}
    h200 = derive_hardware(load_gpu("h200-sxm"))
    for carried, width, centre, shared in ((0.2, 0.3, 0.02, 0.3), (0.5, 0.5, 0.05, 0.7)):
        key = "other to base, nothing told"
        cells = {"base": (0.3, 0.02, 0.3), "nothing": (0.0, 0.02, 0.3), key: (carried, 0.05, 0.7)}
        of_law = [{"gemm half": {cell: of[at] for cell, of in cells.items()}} for at in range(3)]
        weights = Weights(laws, intervals=of_law[0], centres=of_law[1], shared=of_law[2])
        asked = ("gemm half", h200, weights, "nothing", "other")
        assert compute_half_width(*asked) == width
        assert (compute_centre(*asked), compute_shared_fraction(*asked)) == (centre, shared)


def test_an_error_that_all_share_adds_in_squares() -> None:
    """0.6 and 0.8 of 1 are shared and alone; with 0.8 more that is shared it is 1 of sqrt(1.64)."""
    width, shared = add_shared_error(np.array([1.0, 0.0]), np.array([0.6, 0.4]), np.array([0.8, 0.0]))
    assert width.tolist() == pytest.approx([np.sqrt(1.64), 0])
    assert shared.tolist() == pytest.approx([1 / np.sqrt(1.64), 0.4])


def test_a_stack_that_is_slow_on_its_source_is_less_sure_on_another_kind_of_gpu() -> None:
    gemms = pl.DataFrame(
        [{"family": "gemm", "dtype": "bf16", "m": m, "n": 4096, "k": 4096} for m in range(2048, 6144, 128)]
    )
    there = predict(gemms, "a100-sxm-80gb")["time_us"]
    likely, slow = (
        predict(gemms.with_columns(measured_us=there * factor), "h100-sxm", source_gpu="a100-sxm-80gb")
        for factor in (1.0, 1.25)
    )
    assert (slow["high_us"] / slow["time_us"]).mean() > 1.02 * (likely["high_us"] / likely["time_us"]).mean()
    assert slow["shared_error"].mean() > likely["shared_error"].mean()


def test_the_slowness_of_a_stack_that_goes_along_or_not_tells_its_error() -> None:
    """Of two stacks that are 0.3 off on an H100 one is on an H200, too: half is carried, and half is missed."""
    apart = np.tile([0.01, -0.01], 200)
    offs = {"fa2": (0.0, 0.0), "fa3": (0.3, 0.3), "trtllm": (0.3, 0.0)}
    parts = [
        score({"h100-sxm": [*(there + apart)], "h200-sxm": [*(here + apart)]}).with_columns(framework=pl.lit(stack))
        for stack, (there, here) in offs.items()
    ]
    pairs = pair_kernels(pl.concat(parts)).filter(pl.col("gpu") == "h200-sxm")
    row = fit_slowness_error(pairs).row(0, named=True)
    assert row["error"] == pytest.approx(0.5, abs=0.01)
    assert row["rest"] == pytest.approx(0, abs=0.01)
    assert row["groups"] == 3


def test_a_measured_time_narrows_the_interval() -> None:
    row = {"family": "attention", "dtype": "bf16", "heads": 32, "kv_heads": 8, "q_len": 4096, "kv_len": 4096}
    row |= {"head_dim": 128, "causal": True, "framework": "fa3", "paged": True}
    shape = predict(pl.DataFrame([row]), "h200-sxm")
    measured = predict(pl.DataFrame([row | {"measured_us": 500.0}]), "h200-sxm", source_gpu="h100-sxm")
    assert (measured["high_us"] / measured["low_us"])[0] < (shape["high_us"] / shape["low_us"])[0]
