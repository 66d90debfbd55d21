"""Detect GEMMs, convolutions and attention with fp32 inputs that ran on tensor cores (TF32)."""

from collections.abc import Sequence

import polars as pl

from predictors import Gpu
from predictors.kernels import add_law, complete_columns
from predictors.work import add_work
from tracekit.rules import Rule

RULE = Rule(
    "tf32",
    "A kernel with fp32 inputs that exceeds the GPU's fp32 peak ran on tensor cores (TF32).",
    "The peak of the GPU: fp32 arithmetic can't be faster.",
)
TENSOR_CORE_FAMILIES = ("gemm", "conv", "attention", "linear_attention")
PEAK_TOLERANCE = 1.02
TIMER_RESOLUTION_US = 1.0
"""Resolution of a kernel's time: older profilers truncate to whole microseconds."""
FAST_ALGORITHM_KERNEL = r"(?i)winograd|sp3asm|fft"


def detect_tf32(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """Set ``tf32`` on the kernels that ran faster than fp32 arithmetic allows.

    A kernel's name may have no arithmetic type, and the inputs are fp32 either way. One launch above the fp32 peak of
    ``gpu`` proves TF32 for all kernels of that name, if that kernel did its op's work alone. Convolutions by Winograd
    or FFT need fewer multiplications than their shapes imply, so they prove nothing.

    Args:
        kernels: The kernel table, as measured.
        gpu: The GPU that it was measured on; without TF32 support nothing changes.
    """
    return mark_tf32(kernels, find_tf32_names(kernels, gpu))


def find_tf32_names(kernels: pl.DataFrame, gpu: Gpu) -> list[str]:
    """Find the names of kernels of which one launch ran faster than fp32 arithmetic allows; arguments as above."""
    peak = gpu.peak_flops("fp32")
    if not gpu.supports("tf32") or peak is None:
        return []
    flops = add_work(add_law(complete_columns(kernels)))["work_flops"]
    seconds = (pl.col("dur_ns") / 1e3 + TIMER_RESOLUTION_US) / 1e6
    alone = pl.col("share") == 1
    fast = kernels.with_columns(flops=flops).filter(
        _may_be_tf32() & alone & (pl.col("flops") / seconds > PEAK_TOLERANCE * peak)
    )
    return fast["name"].unique().to_list()


def mark_tf32(kernels: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Set ``tf32`` on the matrix kernels of some names."""
    matrix = _may_be_tf32() & pl.col("name").is_in(list(names))
    return kernels.with_columns(dtype=pl.when(matrix).then(pl.lit("tf32")).otherwise("dtype"))


def _may_be_tf32() -> pl.Expr:
    single = pl.col("family").is_in(TENSOR_CORE_FAMILIES) & (pl.col("dtype") == "fp32")
    return single & ~pl.col("name").str.contains(FAST_ALGORITHM_KERNEL)
