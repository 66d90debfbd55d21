"""Define the latency of ops on a CPU: cores in place of SMs, and caches that hold what the op before has written.

Time of an op::

    floor + (compute^4 + memory^4)^(1/4) + page faults

- floor: what PyTorch does for an op, and from two threads on, to start and join them.
- compute: FLOPs over the peak of the op's format times the fraction that a library reaches, less for narrow products,
  and where tiles don't fill the threads; of other ops, clocks for each element.
- memory: bytes over the rate of the smallest cache that holds them, or of the memory.
- page faults: glibc maps each block of 32 MiB and more anew, so the kernel zeroes its pages at the first write.

For example, a product of fp32 with 512 x 768 x 768 on a core of 118 GFLOP/s takes 604 MFLOP / (118 x 0.78 x 0.96) = 6.8
ms; 3 MB are read in 0.05 ms beside it.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Columns, Floats
from predictors.hardware import Hardware
from predictors.laws.terms import LatencyTerms
from predictors.work import uses_matrix_units

PRODUCT_FRACTION = {"fp32": 0.78, "fp64": 0.78, "bf16": 0.88, "fp16": 0.88, "int8": 0.7}
"""Of the peak that large products reach, by format: MKL's of fp32 and oneDNN's of bf16 on an EPYC 9R14 (one core)."""
AMX_FRACTION = 0.45
"""The same of formats on AMX, whose peak the caches can hardly feed. A judgement from published figures of oneDNN."""
WIDE_UNITS, WIDE_FRACTION = ("avx512", "amx"), 0.63
"""Cores with two whole 512-bit units for fp32, and what they reach of a Zen 4's fraction: the median of seven published
steps of a Xeon 8380, without which eight of a Xeon 8480 are as far off as the study says."""
CONVOLUTION_GAIN = 1.25
"""Of oneDNN's convolutions of fp32 over MKL's products there; windows of one pixel gain nothing."""
POINTWISE_FRACTION = 0.65
"""Of oneDNN's convolutions of one pixel in bf16 over its products: the image is laid out anew around them."""
ATTENTION_FRACTION = 0.62
"""Of the peak in fp32 that PyTorch's attention reaches, in bf16 too where there is no AMX."""
NARROW_SIDES = {"m": 5.0, "n": 12.0, "k": 16.0}
"""Sides at which a product takes twice its time, as vectors and tiles aren't full."""
TILE_ROWS, TILE_COLS = 32.0, 64.0
"""Of what a thread computes at once of a product."""
OP_US = 1.5
"""Of an op beside its work: dispatch and allocation, on the reference core."""
REFERENCE_CLOCK_MHZ = 3700.0
THREADS_US = 2.5
"""To start and join threads, times the binary logarithm of their number."""
GRAIN_ELEMENTS = 32768.0
"""Elements of an elementwise op up to which one thread runs it (at::internal::GRAIN_SIZE)."""
CORE_GBPS = 20.0
"""Of the memory that one core has at most: it waits for a few dozen cache lines at once."""
MEMORY_FRACTION = 0.75
"""Of the printed rate that all cores together have (STREAM)."""
CACHE_BYTES_PER_CLOCK = 22.0
"""Of a core from its L2 or its part of the L3."""
SHARED_FRACTION = 0.5
"""Of the last cache that an op's data have, beside those of other ops."""
FAULT_NS_PER_BYTE = 0.5
"""Of pages that are mapped anew: 80 MB took 43 ms longer than into memory that was there."""
MAPPED_BYTES = 32 * 2**20
"""Of a block from which on glibc always maps it anew (M_MMAP_THRESHOLD's most)."""
ELEMENT_CLOCKS = {"softmax": 2.2, "norm": 2.0, "reduction": 0.25, "copy": 0.4, "memset": 0.1, "optimizer": 1.7}
"""Clocks of a core for each element of 4 bytes, by law."""
DEFAULT_ELEMENT_CLOCKS = 0.45
ROW_BYTES_FRACTION = 0.3
"""Of the memory's rate that rows anywhere in it have."""
IN_PLACE_LAWS = ("reduction", "optimizer", "memset")
"""Laws of ops whose results are small, or there already."""
MASKED_QUERIES = 512.0
"""Of a causal mask, up to which all pairs are computed: one block of queries."""
SCATTERED_LAWS = ("embedding", "lookup")
ATTENTION_LAWS = ("prefill", "encoder", "sequence", "decode", "latent")


def compute_cpu_terms(law: str, x: Columns, cpu: Hardware) -> LatencyTerms:
    """Return what the time of rows of one law is made of on a CPU.

    Args:
        law: Law of the rows.
        x: From ``columns.LawInputs.to_columns``.
        cpu: The CPU.
    """
    slower = REFERENCE_CLOCK_MHZ / cpu.clock_mhz
    threads = np.asarray(_count_threads(law, x, cpu))
    floor_us = slower * (OP_US + np.where(threads > 1, THREADS_US * np.log2(np.maximum(threads, 1.0)), 0.0))
    compute_us = _compute_arithmetic_us(law, x, cpu, threads)
    return LatencyTerms(floor_us, compute_us, _compute_memory_us(law, x, cpu, threads))


def compute_fault_us(law: str, x: Columns) -> Floats:
    """Return how long rows wait for pages that are mapped anew, of results of 32 MiB and more."""
    if law in IN_PLACE_LAWS:
        return np.zeros_like(x["work_bytes"])
    written = np.where(x["n"] * x["m"] > 1, x["batch"] * x["m"] * x["n"] * x["size"], x["work_bytes"] / 2)
    written = np.minimum(written, x["work_bytes"])
    return np.where(written >= MAPPED_BYTES, FAULT_NS_PER_BYTE * written / 1e3, 0.0)


def _count_threads(law: str, x: Columns, cpu: Hardware) -> Floats:
    """Return how many threads have work."""
    if law.split(" ")[0] in ATTENTION_LAWS:
        blocks = x["batch"] * x["heads"] * np.ceil(x["q_len"] / TILE_ROWS)
    elif uses_matrix_units(law):
        blocks = x["batch"] * np.ceil(x["m"] / TILE_ROWS) * np.ceil(x["n"] / TILE_COLS)
    else:
        blocks = np.ceil(x["elements"] / GRAIN_ELEMENTS)
    return np.clip(blocks, 1.0, cpu.sms)


def _compute_arithmetic_us(law: str, x: Columns, cpu: Hardware, threads: Floats) -> Floats:
    if law.split(" ")[0] in ATTENTION_LAWS:
        rate: Floats | float = cpu.get_tflops("fp32") * ATTENTION_FRACTION * _get_wide_fraction(cpu)
        if cpu.gpu.compute_capability == "amx":
            rate = np.sqrt(rate * np.maximum(x["tflops"] * AMX_FRACTION, rate))
        whole = 1.0 + (x["causal"] > 0) * np.clip(MASKED_QUERIES / x["q_len"], 0.0, 1.0)
        return np.asarray(x["work_flops"] * whole * cpu.sms / threads / (rate * 1e6))
    if not uses_matrix_units(law):
        clocks = ELEMENT_CLOCKS.get(law, DEFAULT_ELEMENT_CLOCKS) * np.where(x["size"] < 4, 1.2, 1.0)
        return np.asarray(x["elements"] * clocks / threads / cpu.clock_mhz)
    narrow = 1.0 + sum(most / x[side] for side, most in NARROW_SIDES.items())
    rate = x["tflops"] * _find_fraction(law, x, cpu) / narrow
    tiles = x["batch"] * np.ceil(x["m"] / TILE_ROWS) * np.ceil(x["n"] / TILE_COLS)
    uneven = np.ceil(tiles / threads) * threads / np.maximum(tiles, 1.0)
    return np.asarray(x["work_flops"] * uneven * cpu.sms / threads / (rate * 1e6))


def _get_wide_fraction(cpu: Hardware) -> float:
    return WIDE_FRACTION if cpu.gpu.compute_capability in WIDE_UNITS else 1.0


def _find_fraction(law: str, x: Columns, cpu: Hardware) -> Floats:
    """Return the fraction of the peak that products reach."""
    wide = x["size"] >= 4
    narrow_fraction = AMX_FRACTION if cpu.gpu.compute_capability == "amx" else PRODUCT_FRACTION["bf16"]
    of_fp32 = PRODUCT_FRACTION["fp32"] * _get_wide_fraction(cpu)
    fraction = np.where(wide, of_fp32, narrow_fraction)
    if not law.startswith(("conv", "grouped")):
        return fraction
    window = x.get("window_size", np.ones_like(fraction))
    return fraction * np.where(
        window > 1, np.where(wide, CONVOLUTION_GAIN, 1.0), np.where(wide, 1.0, POINTWISE_FRACTION)
    )


def _compute_memory_us(law: str, x: Columns, cpu: Hardware, threads: Floats) -> Floats:
    """Return the time to move a row's bytes: from a cache that holds all of them, else from the memory."""
    moved, each = x["work_bytes"], threads * CACHE_BYTES_PER_CLOCK * cpu.clock_mhz / 1e3
    memory_gbps = np.minimum(threads * CORE_GBPS, MEMORY_FRACTION * cpu.bandwidth_gbps)
    if law in SCATTERED_LAWS:
        return np.asarray(moved / (memory_gbps * ROW_BYTES_FRACTION * 1e3))
    held = max(cpu.gpu.l2_bytes, SHARED_FRACTION * cpu.cache_bytes)
    missing = np.clip(moved / held - 1, 0.0, 1.0)
    return np.asarray(moved * (missing / memory_gbps + (1 - missing) / np.maximum(each, memory_gbps)) / 1e3)
