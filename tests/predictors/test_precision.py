"""Which format a kernel runs in: PyTorch's defaults, and what a GPU has units for."""

from __future__ import annotations

import polars as pl
import pytest

from predictors import load_gpu
from predictors.precision import runs_as


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
        ("t4", "attention", "tf32", "fp32"),
        ("t4", "elementwise", "bf16", "bf16"),
    ],
)
def test_the_nearest_format_that_runs(gpu: str, family: str, asked: str, runs: str):
    table = pl.DataFrame({"family": [family], "dtype": [asked]})
    assert runs_as(table, load_gpu(gpu)).to_list() == [runs]
