"""Kernels that go through memory once, kernels over whole rows, and copies."""

from __future__ import annotations

import numpy as np

from predictors.kernels import DTYPE_BYTES
from predictors.machine import L2_BYTES_PER_SM_CLOCK, Machine
from predictors.terms import Array, Columns, Constants, Terms, memory_us

WIDE_COLS = 1024
"""Up to which number of columns PyTorch's row kernels keep a row in a warp's registers."""


def stream_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A kernel that reads and writes memory once, with some instructions for each element."""
    return _streamed(x, gpu, c, np.asarray(c["element"]), np.ones(1))


def row_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """The same of whole rows: a wide one doesn't fit a warp's registers, in an uneven one 16-byte loads don't align.

    What an element costs grows with its size, by a power near one where a kernel mostly waits for its loads, as norms.
    """
    wide, uneven = x["cols"] > WIDE_COLS, x["uneven"] > 0
    per_element = c["element"] * np.where(wide, 1.0, c["narrow"]) * np.where(uneven, c["uneven"], 1.0)
    per_element = per_element * (x["size"] / DTYPE_BYTES["fp32"]) ** c["by_size"]
    return _streamed(x, gpu, c, per_element, np.where(wide, c["again"], 1.0))


def _streamed(x: Columns, gpu: Machine, c: Constants, per_element: Array, passes: Array) -> Terms:
    """Clocks for each element, and how often the memory is gone through.

    Few blocks draw no more than their SMs' share of what the ports to the cache carry.
    """
    size, busy = x["work_bytes"], np.minimum(x["blocks"], gpu.sms)
    alone = size / (busy * L2_BYTES_PER_SM_CLOCK * c["alone"])
    cycles = np.maximum(x["elements"] * per_element / gpu.sms / c["compute"], alone)
    compute = x["work_flops"] / (gpu.vector_tflops * 1e6) + cycles / gpu.clock_mhz
    memory = memory_us(size, gpu, {**c, "memory": c["memory"] * gpu.written_gbps / gpu.bandwidth_gbps})
    return Terms(c["floor"] / gpu.clock_mhz + 0 * size, compute, memory * passes)


def memcpy_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A copy by a copy engine, over the link or the memory that `copy_gbps` names."""
    copy = x["work_bytes"] / (x["copy_gbps"] * c["memory"]) / 1e3
    return Terms(c["floor"] / gpu.clock_mhz + 0 * copy, 0 * copy, copy)
