"""Which number format a kernel really runs in on a GPU: PyTorch's defaults and what the GPU has units for."""

from __future__ import annotations

import polars as pl

from predictors.gpu import Gpu

FALLBACKS: dict[str, tuple[str, ...]] = {
    "nvfp4": ("fp8", "bf16", "fp16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "fp8_block": ("bf16", "fp16", "fp32"),
    "int8": ("fp16", "fp32"),
    "bf16": ("fp16", "fp32"),
    "fp16": ("fp32",),
    "tf32": ("fp32",),
    "3xtf32": ("fp32",),
}
"""What runs instead where a GPU has no units for a format, best first."""


def runs_as(table: pl.DataFrame, gpu: Gpu) -> pl.Series:
    """The dtype each row runs in on `gpu`.

    fp32 convolutions run as tf32 on NVIDIA Ampere and later, as `torch.backends.cudnn.allow_tf32` defaults to
    true, but for those that were seen on the vector units; fp32 matrix products stay fp32, as
    `torch.backends.cuda.matmul.allow_tf32` defaults to false. PyTorch's memory-efficient attention takes fp32 as three
    products in TF32 there (its gemm_kernel_utils.h, `OpMultiplyAddFastF32` from Sm80 on).

    Args:
        table: rows with `family`, `dtype`, `framework` and `tensor_core`.
        gpu: where the kernels run.

    Returns:
        One dtype a row, null where the row has none.
    """
    nearest = {dtype: _nearest(dtype, gpu) for dtype in FALLBACKS}
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
    return table.select(runs_as=pl.when(tensor).then(dtype).otherwise(pl.col("dtype")))["runs_as"]


def formats(gpu: Gpu) -> tuple[str | bool, ...]:
    """What `runs_as` depends on: GPUs with the same run every kernel in the same format."""
    return (has_tf32(gpu), *(_nearest(dtype, gpu) for dtype in FALLBACKS))


def has_tf32(gpu: Gpu) -> bool:
    """Whether a GPU's matrix units take fp32 as tf32."""
    return gpu.vendor == "nvidia" and gpu.supports("tf32")


def _nearest(dtype: str, gpu: Gpu) -> str:
    return next((d for d in (dtype, *FALLBACKS[dtype]) if gpu.supports(d)), "fp32")
