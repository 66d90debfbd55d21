"""Whose a kernel is, by what a table tells."""

from __future__ import annotations

import polars as pl
import pytest

from predictors import KernelTableError
from predictors.columns import prepare_kernels
from predictors.gpu_names import load_gpu
from predictors.hardware import derive_hardware
from predictors.kernel_identity import parse_framework, parse_release, parse_releases
from predictors.kernels import complete_columns

SHAPES = {
    "gemm": {"m": 512, "n": 512, "k": 512},
    "attention": {"heads": 8, "q_len": 512, "kv_len": 512, "head_dim": 128, "causal": True},
    "moe": {"tokens": 64, "hidden": 2048, "inter": 768, "topk": 8, "experts": 128},
}


def build_row(family: str, dtype: str = "bf16", **told: str | None) -> pl.DataFrame:
    return pl.DataFrame([{"family": family, "dtype": dtype, **SHAPES[family], **told}])


@pytest.mark.parametrize(
    ("family", "dtype", "source", "library"),
    [
        ("gemm", "bf16", "torch.nn.functional.linear", "cublas"),
        ("gemm", "fp8", "CutlassFP8ScaledMMLinearKernel", "cutlass"),
        ("gemm", "fp8", "torch_flow", "trtllm"),
        ("gemm", "fp8_block", "sglang_deepgemm_gemm_nt_f8f8bf16", "deepgemm"),
        ("gemm", "nvfp4", "FlashInferCuteDslNvFp4LinearKernel", "cutedsl"),
        ("attention", "bf16", "vllm_flashinfer_trtllmprefill", "trtllm-gen"),
        ("attention", "bf16", "no such kernel", "trtllm"),
        ("moe", "bf16", "sglang_fused_moe_triton", "triton"),
        ("moe", "fp8", "vllm_modeloptfp8moe_flashinfer_trtllm_trtllmfp8expertsmonolithic", "trtllm-gen"),
        ("moe", "nvfp4", "moe_torch_flow_min_latency", "min-latency"),
    ],
)
def test_a_kernel_source_names_the_library(family: str, dtype: str, source: str, library: str) -> None:
    row = build_row(family, dtype, framework="trtllm", kernel_source=source, version="1.3.0rc20")
    found = complete_columns(row)
    assert found.select("framework", "engine", "release").row(0) == (library, "trtllm", 10299.2)
    again = complete_columns(found)
    assert again.equals(found)


@pytest.mark.parametrize(
    ("older", "newer"), [("0.5.10", "0.5.14"), ("1.3.0rc10", "1.3.0rc20"), ("1.3.0rc20", "1.3.0"), ("0.24.0", "1.0")]
)
def test_releases_are_in_order(older: str, newer: str) -> None:
    first, second = parse_releases(pl.Series([older, newer]))
    assert first < second


def test_a_text_that_is_no_version_says_nothing() -> None:
    assert parse_release("main") is None
    assert parse_releases(pl.Series(["main", None, "0.19.0"])).to_list() == [None, None, 1900.0]


def test_libraries_are_told_in_all_formats_that_engines_run() -> None:
    h100 = derive_hardware(load_gpu("h100-sxm"))
    rows = [build_row("gemm", "fp8_block", framework="deepgemm"), build_row("gemm", framework="cublas")]
    assert [prepare_kernels(row, h100)["framework"].item() for row in rows] == ["deepgemm", "cublas"]
    assert prepare_kernels(build_row("gemm", "fp32", framework="cublas"), h100)["framework"].item() is None


@pytest.mark.parametrize(("family", "library"), [("gemm", "fa3"), ("attention", "cublas"), ("moe", "cublas")])
def test_a_library_of_other_kernels_says_nothing(family: str, library: str) -> None:
    assert prepare_kernels(build_row(family, framework=library))["framework"].to_list() == [None]


def test_where_a_library_does_not_run_the_engine_remains() -> None:
    row = build_row("attention", framework="sglang", kernel_source="fa3")
    assert prepare_kernels(row, derive_hardware(load_gpu("b200")))["framework"].to_list() == ["sglang"]


def test_an_engine_and_its_version() -> None:
    assert parse_framework("vLLM==0.19.0") == ("vllm", "0.19.0")
    assert parse_framework("sglang") == ("sglang", None)
    for text in ("vllm==main", "torch==2.9", "==1"):
        with pytest.raises(KernelTableError):
            parse_framework(text)
