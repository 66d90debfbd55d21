"""The time that nothing can beat: arithmetic at peak, memory at its rate."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats
from predictors.kernels import DTYPE_BYTES
from predictors.machine import Machine
from predictors.terms import Columns

WINOGRAD = 4.0
"""How many times fewer multiplications F(4x4, 3x3) needs (Lavin and Gray 2015); fp32 convolutions may use it."""

MATRIX_LAWS = ("gemm", "conv", "moe", "prefill", "encoder", "sequence", "decode")

CACHE_HEADROOM = 1.3
"""How far over `Machine.cache_gbps` a real cache may run."""


def bound_us(law: str, x: Columns, gpu: Machine) -> Floats:
    """Least time of rows that share a law, in microseconds.

    The last-level cache may hold what the previous kernel left there, so memory counts at 1.3 times the cache's rate
    as long as everything fits, and at the memory's own rate from twice the cache on (linear in between).

    Args:
        law: its name.
        x: from `columns.law_columns`.
        gpu: the GPU.
    """
    size = x["work_bytes"]
    memory = size / x["copy_gbps"] / 1e3 if law == "memcpy" else memory_bound_us(size, gpu)
    return np.asarray(np.maximum(arithmetic_us(law, x, gpu), memory))


def arithmetic_us(law: str, x: Columns, gpu: Machine) -> Floats:
    """Least time of the rows' arithmetic, at the peak of the units that do it, in microseconds.

    Args:
        law: its name.
        x: from `columns.law_columns`.
        gpu: the GPU.
    """
    rate = x["tflops"] if on_matrix_units(law) else gpu.vector_tflops
    winograd = np.where(x["size"] == DTYPE_BYTES["fp32"], WINOGRAD, 1.0) if law == "conv fp32" else 1.0
    return np.asarray(x["work_flops"] / winograd / (rate * 1e6))


def on_matrix_units(law: str) -> bool:
    """Whether a law's kernels compute on the matrix units, where a GPU has them; else on the vector units."""
    return law.split(" ")[0] in MATRIX_LAWS


def memory_bound_us(size_bytes: Floats, gpu: Machine) -> Floats:
    """Least time to move bytes of which the cache may hold its fill already."""
    missing = np.clip(size_bytes / gpu.cache_bytes - 1, 0, 1)
    cache_gbps = CACHE_HEADROOM * gpu.cache_gbps
    return np.asarray(np.maximum(size_bytes * missing / gpu.gpu.bandwidth_gbps, size_bytes / cache_gbps) / 1e3)
