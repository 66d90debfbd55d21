"""The time that nothing can beat: arithmetic at peak, memory at its rate."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.law import Array
from predictors.machine import Machine

WINOGRAD = 4.0
"""How many times fewer multiplications F(4x4, 3x3) needs (Lavin and Gray 2015); fp32 convolutions may use it."""

CACHE_HEADROOM = 1.3
"""How far over `Machine.cache_gbps` a real cache may run."""


def with_bound(table: pl.DataFrame, gpu: Machine) -> pl.DataFrame:
    """Adds `bound_us`, `compute_bound_us` and `memory_bound_us`, null where a row's work isn't known.

    The last-level cache may hold what the previous kernel left there, so memory counts at 1.3 times the cache's rate
    as long as everything fits, and at the memory's own rate from twice the cache on (linear in between).

    Args:
        table: from `columns.prepare`.
        gpu: the GPU.
    """
    size = table["work_bytes"].to_numpy().astype(float)
    winograd = ((table["family"] == "conv") & (table["dtype"] == "fp32")).fill_null(False).to_numpy()
    flops = table["work_flops"].to_numpy() / np.where(winograd, WINOGRAD, 1.0)
    compute = flops / (_rates(table, gpu) * 1e6)
    memory = np.where(table["family"] == "memcpy", _copy_us(table, size, gpu), memory_bound_us(size, gpu))
    bound = np.maximum(compute, memory)
    columns = {"bound_us": bound, "compute_bound_us": compute, "memory_bound_us": memory}
    series = (pl.Series(name, values, dtype=pl.Float64, nan_to_null=True) for name, values in columns.items())
    return table.with_columns(series)


def memory_bound_us(size_bytes: Array, gpu: Machine) -> Array:
    """Least time to move bytes of which the cache may hold its fill already."""
    missing = np.clip(size_bytes / gpu.cache_bytes - 1, 0, 1)
    cache_gbps = CACHE_HEADROOM * gpu.cache_gbps
    return np.asarray(np.maximum(size_bytes * missing / gpu.bandwidth_gbps, size_bytes / cache_gbps) / 1e3)


def _copy_us(table: pl.DataFrame, size_bytes: Array, gpu: Machine) -> Array:
    rates = {kind: gpu.copy_gbps(kind) for kind in table["copy_kind"].unique().to_list()}
    return np.asarray(size_bytes / table["copy_kind"].replace_strict(rates, return_dtype=pl.Float64).to_numpy() / 1e3)


def _rates(table: pl.DataFrame, gpu: Machine) -> Array:
    """TFLOP/s that each row could reach: of its dtype for products, of fp32 vector units for the rest."""
    tensor = table["family"].is_in(["gemm", "conv", "attention", "moe"]).to_numpy()
    rates = {dtype: gpu.tflops(dtype) for dtype in table["dtype"].unique().to_list()}
    peak = table["dtype"].replace_strict(rates, default=gpu.tflops("fp32"), return_dtype=pl.Float64).to_numpy()
    return np.where(tensor, peak, gpu.vector_tflops)
