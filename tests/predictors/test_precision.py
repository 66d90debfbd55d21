"""Which format a kernel runs in: PyTorch's defaults, and what a GPU has units for."""

from __future__ import annotations

import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.hardware import derive_hardware, resolve_dtype
from predictors.kernels import complete_columns


@pytest.mark.parametrize(
    ("gpu", "family", "asked", "runs"),
    [
        ("a100-sxm-80gb", "conv", "fp32", "tf32"),
        ("h100-sxm", "conv", "fp32", "tf32"),
        ("t4", "conv", "fp32", "fp32"),
        ("mi300x", "conv", "fp32", "fp32"),
        ("h100-sxm", "gemm", "fp32", "fp32"),
        ("t4", "gemm", "bf16", "fp16"),
        ("p4", "gemm", "bf16", "fp32"),
        ("a100-sxm-80gb", "gemm", "fp8", "bf16"),
        ("v100-pcie-32gb", "moe", "fp8_block", "fp16"),
        ("h100-sxm", "gemm", "nvfp4", "fp8"),
        ("b200", "gemm", "nvfp4", "nvfp4"),
        ("rtx-4090", "moe", "nvfp4", "fp8"),
        ("mi355x", "gemm", "nvfp4", "mxfp4"),
        ("mi300x", "gemm", "mxfp4", "fp8"),
        ("h100-sxm", "gemm", "mxfp8", "fp8"),
        ("rtx-5090", "moe", "mxfp4", "mxfp4"),
        ("rx-7900-xtx", "gemm", "mxfp8", "bf16"),
        ("t4", "attention", "tf32", "fp32"),
        ("h100-sxm", "attention", "3xtf32", "3xtf32"),
        ("t4", "attention", "3xtf32", "fp32"),
        ("t4", "elementwise", "bf16", "bf16"),
        ("t4", "moe", "int4_wo", "int4_wo"),
        ("h100-sxm", "moe", "w4afp8", "w4afp8"),
        ("a100-sxm-80gb", "moe", "w4afp8", "int4_wo"),
        ("h100-sxm", "moe", "w4a8_mxfp4_mxfp8", "w4a16_mxfp4"),
        ("b200", "moe", "w4a8_mxfp4_mxfp8", "w4a8_mxfp4_mxfp8"),
    ],
)
def test_the_nearest_format_that_runs(gpu: str, family: str, asked: str, runs: str):
    kernels = complete_columns(pl.DataFrame({"family": [family], "dtype": [asked]}))
    assert kernels.select(resolve_dtype(load_gpu(gpu))).item() == runs


@pytest.mark.parametrize(
    ("gpu", "framework", "runs"),
    [
        ("a100-sxm-80gb", "memeff", "3xtf32"),
        ("v100-pcie-32gb", "memeff", "fp32"),
        ("mi300x", "memeff", "fp32"),
        ("a100-sxm-80gb", None, "fp32"),
    ],
)
def test_memory_efficient_attention_takes_fp32_as_three_products_in_tf32(gpu: str, framework: str | None, runs: str):
    attention = pl.DataFrame({"family": ["attention"], "dtype": ["fp32"], "framework": [framework]})
    assert complete_columns(attention).select(resolve_dtype(load_gpu(gpu))).item() == runs


CONVOLUTION = {"family": "conv", "dtype": "fp32", "m": 100352, "n": 256, "k": 2304}


def test_a_convolution_seen_on_vector_units_stays_there():
    seen = [CONVOLUTION | {"tensor_core": on} for on in (False, True, None)]
    vector, matrix, unknown = predict(pl.DataFrame(seen), "a100-sxm-80gb")["time_us"]
    assert vector > 2 * matrix
    assert matrix == unknown


def test_where_there_may_be_no_matrix_units_a_convolution_on_vector_units_tells_nothing():
    seen = pl.DataFrame([CONVOLUTION | {"measured_us": 9000.0, "tensor_core": on} for on in (False, None)])
    from_v100 = predict(seen, "h100-sxm", source_gpu="v100-sxm-32gb")["time_us"]
    from_a100 = predict(seen, "h100-sxm", source_gpu="a100-sxm-80gb")["time_us"]
    from_unknown = predict(seen, "h100-sxm")["time_us"]
    assert from_v100[0] == from_v100[1]
    assert from_a100[0] != from_a100[1]
    assert from_unknown[0] == from_unknown[1]


def test_weights_of_4_bits_are_multiplied_in_the_format_of_the_inputs():
    h100, b200 = (derive_hardware(load_gpu(name)) for name in ("h100-sxm", "b200"))
    assert h100.get_tflops("int4_wo") == h100.get_tflops("bf16")
    assert h100.get_tflops("w4a8_mxfp4_mxfp8") == h100.get_tflops("bf16")
    assert b200.get_tflops("w4a8_mxfp4_mxfp8") == b200.get_tflops("fp8")
