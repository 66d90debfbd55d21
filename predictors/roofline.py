"""Compute the least possible time: arithmetic at peak rate, memory traffic at the full rate."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Columns, Floats
from predictors.hardware import Hardware
from predictors.kernels import DTYPE_BYTES

WINOGRAD_SAVING = 4.0
"""How many times fewer multiplications F(4x4, 3x3) needs (Lavin and Gray 2015); fp32 convolutions may use it."""

MATRIX_UNIT_LAWS = ("gemm", "conv", "moe", "prefill", "encoder", "sequence", "decode", "latent")

CACHE_RATE_HEADROOM = 1.3
"""How far over `Machine.cache_gbps` a real cache may run."""


def compute_bound_us(law: str, x: Columns, gpu: Hardware) -> Floats:
    """Least time of rows that share a law, in microseconds.

    The last-level cache may still hold the output of the previous kernel. So traffic that fits the cache counts at 1.3
    times the cache's rate, traffic of twice the cache size and more at the memory's rate, with linear interpolation in
    between.

    Args:
        law: Name of the law.
        x: From ``columns.LawInputs.to_columns``.
        gpu: The GPU.
    """
    size = x["work_bytes"]
    memory = size / x["copy_gbps"] / 1e3 if law == "memcpy" else compute_memory_bound_us(size, gpu)
    host = x["host_bytes"] / gpu.gpu.pcie_gbps / 1e3
    return np.asarray(np.maximum(np.maximum(compute_arithmetic_us(law, x, gpu), memory), host))


def compute_arithmetic_us(law: str, x: Columns, gpu: Hardware) -> Floats:
    """Least time of the rows' arithmetic, at the peak of the units that do it, in microseconds.

    Args:
        law: its name.
        x: from `columns.law_columns`.
        gpu: the GPU.
    """
    rate = x["tflops"] if uses_matrix_units(law) else gpu.vector_tflops
    winograd = np.where(x["size"] == DTYPE_BYTES["fp32"], WINOGRAD_SAVING, 1.0) if law == "conv fp32" else 1.0
    return np.asarray(x["work_flops"] / winograd / (rate * 1e6))


def uses_matrix_units(law: str) -> bool:
    """Whether a law's kernels compute on the matrix units, where a GPU has them; else on the vector units."""
    return law.split(" ")[0] in MATRIX_UNIT_LAWS


def compute_memory_bound_us(size_bytes: Floats, gpu: Hardware) -> Floats:
    """Least time to move bytes of which the cache may hold its fill already."""
    missing = np.clip(size_bytes / gpu.cache_bytes - 1, 0, 1)
    cache_gbps = CACHE_RATE_HEADROOM * gpu.cache_gbps
    return np.asarray(np.maximum(size_bytes * missing / gpu.gpu.bandwidth_gbps, size_bytes / cache_gbps) / 1e3)
