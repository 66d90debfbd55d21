"""What of a measurement comes along to another GPU."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.arrays import CategoricalColumn
from predictors.columns import adapt_to_gpu
from predictors.hardware import Hardware, derive_hardware
from predictors.kernels import complete_columns
from predictors.model import KernelsByLaw, split_by_law
from predictors.transfer import (
    KERNEL_EXPONENTS,
    MAX_LAW_LOG_ERROR,
    UNFITTED_EXPONENTS,
    classify_kinship,
    compute_interval_ends,
    compute_target_correction,
    split_source_errors,
)
from predictors.weights_file import LawConstants, Weights

A100, H100, H200, MI300X = (
    derive_hardware(load_gpu(name)) for name in ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "mi300x")
)
WEIGHTS = Weights({"gemm half": LawConstants({}), "norm": LawConstants({})}, transfer={"gemm half": {"other": 0.25}})


def carried(ratios: list[float], law: str = "gemm half", framework: str | None = "vllm", target=A100) -> np.ndarray:
    each = np.arange(len(ratios))
    names = {name: CategoricalColumn((value,), 0 * each) for name, value in (("law", law), ("framework", framework))}
    rows = KernelsByLaw(pl.DataFrame({"law": [law] * len(ratios), "on_mma": False}), names, ())
    return compute_target_correction(
        split_source_errors(rows, each, np.log(np.array(ratios))), rows, each, H100, target, WEIGHTS
    )


@pytest.mark.parametrize(
    ("a", "b", "kin"),
    [
        ("h100-sxm", "h200-sxm", "sibling"),
        ("a100-sxm-80gb", "l40s", "class"),
        ("a100-sxm-80gb", "h100-sxm", "other"),
        ("h100-sxm", "mi300x", "vendor"),
    ],
)
def test_kinship(a: str, b: str, kin: str):
    assert classify_kinship(derive_hardware(load_gpu(a)), derive_hardware(load_gpu(b))) == kin


def test_a_known_stack_carries_by_the_fitted_exponent():
    assert carried([1.2, 1.2, 1.2]) == pytest.approx(0.25 * np.log([1.2] * 3))


def test_a_sibling_takes_more():
    assert carried([1.2], target=H200)[0] == pytest.approx(KERNEL_EXPONENTS["sibling"] * np.log(1.2))


def test_what_a_law_does_not_describe_is_carried_whole():
    extra = carried([4 * np.exp(MAX_LAW_LOG_ERROR)])[0] - carried([np.exp(MAX_LAW_LOG_ERROR)])[0]
    assert extra == pytest.approx(np.log(4.0))


def test_of_a_library_that_the_other_vendor_does_not_have_little_comes_along():
    odd = [4 * np.exp(MAX_LAW_LOG_ERROR)]
    assert carried(odd, target=MI300X)[0] == pytest.approx(KERNEL_EXPONENTS["vendor"] * np.log(odd[0]))
    pytorch = (
        carried(odd, law="norm", target=MI300X)[0] - carried([np.exp(MAX_LAW_LOG_ERROR)], law="norm", target=MI300X)[0]
    )
    assert pytorch == pytest.approx(np.log(4.0))


def test_an_unknown_stack_carries_most_of_what_all_its_kernels_share():
    alike = carried([1.5] * 100, law="norm", framework=None)
    assert (alike >= 0.95 * UNFITTED_EXPONENTS["other"] * np.log(1.5)).all()


@pytest.mark.parametrize("ratio", [0.8, 1.5, 4.0])
def test_what_a_product_takes_on_matrix_units_tells_nothing_of_vector_units(ratio: float):
    """A V100 has no TF32; beyond a factor of two the counted work is in doubt, wherever it is done."""
    products = {"family": ["gemm"] * 2, "dtype": ["tf32", "fp16"], "m": [1024] * 2, "n": [1024] * 2, "k": [1705] * 2}
    rows = pl.DataFrame(products)
    measured = rows.with_columns(measured_us=ratio * predict(rows, "a100-sxm-40gb")["time_us"])
    moved = predict(measured, "v100-sxm-16gb", source_gpu="a100-sxm-40gb")["time_us"]
    tf32, fp16 = moved / predict(rows, "v100-sxm-16gb")["time_us"]
    assert tf32 == pytest.approx(max(1.0, ratio / np.exp(MAX_LAW_LOG_ERROR)))
    assert fp16 != pytest.approx(tf32, rel=0.02)


def test_nothing_measured_carries_nothing():
    assert carried([np.nan, np.nan]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("measured_us", [2.0, 30.0, 1000.0])
@pytest.mark.parametrize("k", [64, 4096])
def test_a_sibling_gains_no_more_than_its_best_resource(measured_us, k):
    """H100 to H200: the same chip on a faster memory."""
    kernels = pl.DataFrame(
        {"family": ["gemm"], "dtype": ["bf16"], "batch": [1], "m": [4096], "n": [4096], "k": [k]}
    ).with_columns(measured_us=measured_us)
    gain = measured_us / predict(kernels, "h200-sxm", source_gpu="h100-sxm")["time_us"][0]
    assert 1.0 <= gain <= H200.bandwidth_gbps / H100.bandwidth_gbps + 1e-9


REDUCTION = {"family": "reduction", "dtype": "bf16", "bytes": 4e8, "measured_us": 500.0}
"""Its law has a wide interval."""


def test_a_siblings_interval_ends_near_the_ratio_of_the_resource_that_differs_most():
    """The H200 has a faster memory, all else is the same: it is better in everything, 1.1 times as long is the most."""
    beyond = np.exp(0.15)
    faster = predict(pl.DataFrame([REDUCTION]), "h200-sxm", source_gpu="h100-sxm").row(0, named=True)
    gain = H200.bandwidth_gbps / H100.bandwidth_gbps
    assert faster["high_us"] == pytest.approx(500 * 1.1)
    assert faster["low_us"] == pytest.approx(500 / gain / beyond)
    slower = predict(pl.DataFrame([REDUCTION]), "h100-sxm", source_gpu="h200-sxm").row(0, named=True)
    assert (slower["low_us"], slower["high_us"]) == pytest.approx((500 / 1.1, 500 * gain * beyond))


CONVOLUTION = {
    "family": "conv", "dtype": "tf32", "m": 25690112, "n": 64, "k": 576, "channels": 64, "height": 224, "width": 224,
    "measured_us": 99000.0,
}  # fmt: skip
"""Its law was measured on so few GPUs that a B200's interval would end at 34 times its time."""


@pytest.mark.parametrize("better", ["b200", "gb200", "b300", "gb300"])
def test_on_a_gpu_better_in_everything_an_interval_ends_little_over_the_measured_time(better: str):
    row = predict(pl.DataFrame([CONVOLUTION]), better, source_gpu="h100-sxm").row(0, named=True)
    assert row["time_us"] < row["high_us"] <= 99000 * 1.1 * (1 + 1e-9)


def test_between_architectures_an_interval_ends_near_the_ratio_of_the_resource_that_differs_most():
    """An A100 has 156 of an H100's 494.7 TFLOP/s in TF32, and e^0.5 is how far times lie beyond that."""
    row = predict(pl.DataFrame([CONVOLUTION]), "a100-sxm-80gb", source_gpu="h100-sxm").row(0, named=True)
    worst = max(load_gpu("h100-sxm").vector_tflops["fp32"] / 19.5, 494.7 / 156)
    low, high = bound_ends(CONVOLUTION, H100, derive_hardware(load_gpu("a100-sxm-80gb")))
    assert high == pytest.approx(worst * np.exp(0.5), rel=1e-3)
    assert low == pytest.approx(1 / 1.1, rel=1e-6)
    assert 99000 * low[0] * (1 - 1e-9) <= row["low_us"] <= row["time_us"] <= row["high_us"]
    assert row["high_us"] <= 99000 * high[0] * (1 + 1e-9)


def bound_ends(kernel: dict[str, object], source: Hardware, target: Hardware) -> tuple[np.ndarray, np.ndarray]:
    table = complete_columns(pl.DataFrame([kernel]))
    return compute_interval_ends(*(split_by_law(adapt_to_gpu(table, gpu)) for gpu in (target, source)), source, target)


ATTENTION = {"family": "attention", "dtype": "bf16", "heads": 32, "kv_len": 4096, "head_dim": 128}
ENCODER, PREFILL = ATTENTION | {"q_len": 4096}, ATTENTION | {"q_len": 4096, "causal": True}
DECODE, UNSHAPED_DECODE = ATTENTION | {"q_len": 1}, {"family": "attention", "dtype": "bf16", "split_k": True}
BLOCK_SCALED = {"family": "gemm", "dtype": "fp8_block", "m": 4096, "n": 4096, "k": 4096}
B200 = derive_hardware(load_gpu("b200"))


def test_kernels_that_an_engine_chooses_anew_have_no_such_ends():
    assert np.isnan(bound_ends(ENCODER, H100, H200)).all()
    assert np.isfinite(bound_ends(PREFILL, H100, H200)).all()


@pytest.mark.parametrize("kernel", [ENCODER, DECODE, UNSHAPED_DECODE, BLOCK_SCALED, BLOCK_SCALED | {"m": None}])
def test_what_better_gpus_were_measured_to_run_more_slowly_has_no_such_ends(kernel: dict[str, object]):
    assert np.isnan(bound_ends(kernel, H100, B200)).all()
    assert np.isfinite(bound_ends(PREFILL, H100, B200)).all()


def test_libraries_of_amd_and_of_another_vendor_have_no_such_ends():
    mi210, mi300x = (derive_hardware(load_gpu(name)) for name in ("mi210", "mi300x"))
    assert np.isnan(bound_ends(CONVOLUTION | {"dtype": "fp16"}, mi210, mi300x)).all()
    assert np.isnan(bound_ends(PREFILL, H100, mi300x)).all()


def test_a_convolution_that_winograd_spared_multiplications_may_gain_less_in_tf32():
    """An A2's 9.062 TFLOP/s in TF32 are more than a T4's 8.1 in fp32, which may have saved three in four of them."""
    t4, a2 = (derive_hardware(load_gpu(name)) for name in ("t4", "a2"))
    most = bound_ends(CONVOLUTION | {"dtype": "fp32", "winograd": True}, t4, a2)[1][0]
    assert most == pytest.approx(4 * 8.1 / 9.062 * np.exp(0.5))


@pytest.mark.parametrize(("source", "target"), [("h100-sxm", "h800-sxm"), ("v100-sxm-16gb", "v100-sxm-32gb")])
def test_of_the_same_die_a_kernel_takes_as_long_but_for_how_far_boards_are_apart(source: str, target: str):
    large = {"family": "gemm", "dtype": "fp16", "m": 4096, "n": 4096, "k": 4096, "measured_us": 2345.0}
    held_back = [large | {"dtype": "fp64"}, {"family": "memcpy", "bytes": 1e8, "measured_us": 2345.0}]
    rows = predict(pl.DataFrame([large, *held_back]), target, source_gpu=source)
    assert rows["time_us"][0] == 2345
    assert (rows["low_us"][0], rows["high_us"][0]) == pytest.approx(
        (2345 * np.exp(-0.05), 2345 * np.exp(0.05)), rel=1e-3
    )
    assert (rows["high_us"] / rows["time_us"])[1:].min() > 1.06


def test_another_memory_makes_another_gpu():
    large = {"family": "gemm", "dtype": "fp16", "m": 4096, "n": 4096, "k": 4096, "measured_us": 2345.0}
    row = predict(pl.DataFrame([large]), "h200-sxm", source_gpu="h100-sxm").row(0, named=True)
    assert row["high_us"] / row["low_us"] > 1.15


def test_a_copy_from_pageable_memory_keeps_the_time_that_its_host_took():
    """A100 to H100: PCI Express twice as fast, of which a copy at an eighth of the link's rate gains little."""
    copies = pl.DataFrame({"family": ["memcpy"] * 2, "bytes": [1e8] * 2, "copy_kind": ["HtoD", "DtoD"]})
    by_link = [predict(copies, gpu.slug)["time_us"] for gpu in (A100, H100)]
    assert by_link[0][0] == pytest.approx(2 * by_link[1][0], rel=0.02)
    carried = predict(copies.with_columns(measured_us=8 * by_link[0]), "h100-sxm", source_gpu="a100-sxm-80gb")
    assert carried["time_us"][0] == pytest.approx(7 * by_link[0][0] + by_link[1][0])
    assert carried["time_us"][1] == pytest.approx(8 * by_link[1][1])
    pinned = predict(copies.with_columns(measured_us=by_link[0]), "h100-sxm", source_gpu="a100-sxm-80gb")
    assert pinned["time_us"].to_list() == pytest.approx(by_link[1].to_list())


def test_work_that_was_counted_but_not_done_on_the_source_is_not_done_on_the_target():
    """A gather of which all of a table was counted: measured at a hundredth of the bound, it stays as quick."""
    gather = {"family": "reduction", "dtype": "fp32", "rows": 2**16, "cols": 2**12, "bytes": 4.0 * 2**28}
    there = predict(pl.DataFrame([gather]), "h100-sxm")
    rows = pl.DataFrame([gather | {"measured_us": there["bound_us"][0] / 100}])
    slower = load_gpu("h100-sxm").bandwidth_gbps / load_gpu("a100-sxm-80gb").bandwidth_gbps
    time_us = predict(rows, "a100-sxm-80gb", source_gpu="h100-sxm")["time_us"][0]
    assert rows["measured_us"][0] <= time_us < 1.5 * slower * rows["measured_us"][0]
