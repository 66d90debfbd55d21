"""Which GEMMs, convolutions and attention in fp32 ran on tensor cores after all."""

import polars as pl

from predictors import Gpu
from predictors.kernels import complete, with_law
from predictors.work import with_work

PRODUCTS = ("gemm", "conv", "attention")
TOLERANCE = 1.02
RESOLUTION_US = 1.0
"""Older profilers cut times to whole microseconds."""
FEWER_MULTIPLIES = r"(?i)winograd|sp3asm|fft"


def proven(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """``kernels`` with ``tf32`` for those that ran faster than fp32 arithmetic allows.

    A kernel's name may say nothing about its arithmetic, and its inputs are fp32 either way. One launch above
    the fp32 peak of ``gpu`` proves it for all kernels of that name, if it alone did its op's work. Convolutions by
    Winograd or FFT do with fewer multiplies than their shapes say, which proves nothing.

    Args:
        kernels: The kernel table, as measured.
        gpu: Where it was measured; without units for TF32 nothing changes.
    """
    peak = gpu.peak_flops("fp32")
    if not gpu.supports("tf32") or peak is None:
        return kernels
    flops = with_work(with_law(complete(kernels)))["work_flops"]
    single = pl.col("family").is_in(PRODUCTS) & (pl.col("dtype") == "fp32")
    single &= ~pl.col("name").str.contains(FEWER_MULTIPLIES)
    seconds = (pl.col("dur_ns") / 1e3 + RESOLUTION_US) / 1e6
    alone = pl.col("share") == 1
    fast = kernels.with_columns(flops=flops).filter(single & alone & (pl.col("flops") / seconds > TOLERANCE * peak))
    matrix = single & pl.col("name").is_in(fast["name"].unique().to_list())
    return kernels.with_columns(dtype=pl.when(matrix).then(pl.lit("tf32")).otherwise("dtype"))
