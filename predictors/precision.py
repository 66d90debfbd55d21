"""Find the dtype that a kernel really runs in on a GPU, from PyTorch's defaults and the GPU's units."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from predictors.gpu import Gpu

DTYPE_FALLBACKS: dict[str, tuple[str, ...]] = {
    "nvfp4": ("mxfp4", "fp8", "bf16", "fp16", "fp32"),
    "mxfp4": ("fp8", "bf16", "fp16", "fp32"),
    "mxfp8": ("fp8", "bf16", "fp16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "fp8_block": ("bf16", "fp16", "fp32"),
    "int8": ("fp16", "fp32"),
    "bf16": ("fp16", "fp32"),
    "fp16": ("fp32",),
    "tf32": ("fp32",),
    "3xtf32": ("fp32",),
}
"""Dtypes that run instead where a GPU has no units for a dtype, best first."""


def resolve_dtype(gpu: Gpu) -> pl.Expr:
    """Return the dtype that a row with ``family``, ``dtype``, ``framework`` and ``tensor_core`` runs in on a GPU.

    - fp32 convolutions run as tf32 on NVIDIA Ampere and later, as ``torch.backends.cudnn.allow_tf32`` defaults to true,
      except those that were seen on the vector units.
    - fp32 GEMMs stay fp32, as ``torch.backends.cuda.matmul.allow_tf32`` defaults to false.
    - PyTorch's memory-efficient attention computes fp32 by three GEMMs in TF32 there (its gemm_kernel_utils.h,
      ``OpMultiplyAddFastF32`` from Sm80 on).
    """
    nearest = {dtype: find_supported_dtype(dtype, gpu) for dtype in DTYPE_FALLBACKS}
    by_tf32 = (pl.col("dtype") == "fp32") & pl.lit(has_tf32(gpu))
    convolution = (pl.col("family") == "conv") & pl.col("tensor_core").fill_null(True)
    attention = (pl.col("family") == "attention") & (pl.col("framework") == "memeff")
    dtype = (
        pl.when(by_tf32 & convolution)
        .then(pl.lit("tf32"))
        .when(by_tf32 & attention)
        .then(pl.lit("3xtf32"))
        .otherwise(pl.col("dtype").replace(nearest))
    )
    tensor = pl.col("family").is_in(["gemm", "conv", "attention", "moe"])
    return pl.when(tensor).then(dtype).otherwise(pl.col("dtype"))


def get_format_key(gpu: Gpu, dtypes: Collection[str]) -> tuple[str | bool, ...]:
    """What `runs_as` depends on: GPUs with the same run every kernel of some dtypes in the same format."""
    return (has_tf32(gpu), *(find_supported_dtype(dtype, gpu) for dtype in DTYPE_FALLBACKS if dtype in dtypes))


def has_tf32(gpu: Gpu) -> bool:
    """Return whether a GPU's matrix units take fp32 as tf32."""
    return gpu.vendor == "nvidia" and gpu.supports("tf32")


def find_supported_dtype(dtype: str, gpu: Gpu) -> str:
    """Return the nearest dtype that a GPU has units for: fp8 on an A100 is bf16, bf16 on a V100 fp16."""
    return next((d for d in (dtype, *DTYPE_FALLBACKS.get(dtype, ())) if gpu.supports(d)), "fp32")
