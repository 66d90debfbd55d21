"""Attention: many queries tiled over the SMs, or the cache of keys streamed for a few."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from predictors.arrays import Floats
from predictors.kernels import DTYPE_BYTES
from predictors.machine import Machine
from predictors.terms import Columns, Constants, Terms, cyclic_us, memory_us, overlap, rounds

QUERIES = 128
"""That a block works on."""
LEAST_KEYS = 64
"""That a block works on at once and pads fewer to. Engines' kernels only do in fp32, as CUTLASS's: with all formats
padded so, those measured come out as well in the base and up to 2 points worse on GPUs left out."""
BACKWARD_BYTES = 14.0
"""That kernels before and after a backward pass move for each element of the queries, which takes time of its own: the
output and its gradient are read and sums in fp32 cleared, then the sums read and the gradient written
(FlashAttention 2's flash_bwd_preprocess_kernel.h)."""


@dataclass(frozen=True)
class Blocks:
    """How kernels cut attention up, arrays of one element a row, or one number for all.

    Attributes:
        queries: that a block works on.
        least_keys: that it works on; fewer are padded.
        handling: clock cycles of a block beside those of its keys.
        passes: how often the work is done.
        outside: share of the work on keys outside of a window that is done too, and masked.
    """

    queries: Floats | float
    least_keys: Floats | float
    handling: Floats | float
    passes: Floats | float = 1.0
    outside: Floats | float = 0.0


def prefill_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """Attention tiled over queries: matrix products plus exponentials, blocks of 128 queries."""
    return _tiled(x, gpu, c, _of_engines(x, c, c["masked"]))


def encoder_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """The same over whole sequences, whose kernels leave out what is outside of a window."""
    return _tiled(x, gpu, c, _of_engines(x, c))


def sequence_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """The same on tensors instead of a cache's pages; backward so many times the work, and kernels around it."""
    backward = x["backward"]
    handling = c["per_block"] * x["block_queries"] / QUERIES
    terms = _tiled(x, gpu, c, Blocks(x["block_queries"], LEAST_KEYS, handling, 1 + backward * (c["backward"] - 1)))
    around = BACKWARD_BYTES * x["batch"] * x["q_len"] * x["heads"] * x["head_dim"]
    return replace(terms, compute_us=terms.compute_us + backward * memory_us(around, gpu, c))


def _of_engines(x: Columns, c: Constants, outside: Floats | float = 0.0) -> Blocks:
    padded = np.where(x["size"] == DTYPE_BYTES["fp32"], LEAST_KEYS, 0)
    return Blocks(QUERIES, padded, c["per_block"] * _padded_width(x) / 128, outside=outside)


def _padded_width(x: Columns) -> Floats:
    return np.asarray(32 * np.ceil(x["head_dim"] / 32))


def _tiled(x: Columns, gpu: Machine, c: Constants, cut: Blocks) -> Terms:
    """Blocks of queries over their keys."""
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    products = 4.0 * cut.queries * _padded_width(x) / (flops_per_cycle * c["compute"])
    exponentials = cut.queries / gpu.exponentials_per_clock * c["softmax"]
    blocks = x["batch"] * x["heads"] * np.ceil(x["q_len"] / cut.queries)
    # A block works on all the keys of its last query: half a block more than its queries have on average.
    rows = np.minimum(x["q_len"], cut.queries)
    keys = np.minimum(x["attended"] / x["q_len"] + rows / 2, x["reach"])
    # The longest block: the keys of the last query, and of the others of its block where a window moves along.
    longest = np.where(x["window"] > 0, np.minimum(x["window"] + rows, x["reach"]), x["reach"])
    keys, longest = np.maximum(keys, cut.least_keys), np.maximum(longest, cut.least_keys)
    outside = cut.outside * (x["window"] > 0)
    keys = keys + outside * np.maximum(np.minimum(_mean_keys(x) + rows / 2, x["kv_len"]) - keys, 0) + c["prologue"]
    longest = np.asarray(longest + outside * np.maximum(x["kv_len"] - longest, 0) + c["prologue"])
    spread = blocks * keys / gpu.sms * rounds(blocks / gpu.sms, c) / np.maximum(blocks / gpu.sms, 1.0)
    cycles = overlap(spread, longest) * (products + exponentials) + np.maximum(blocks / gpu.sms, 1.0) * cut.handling
    again = c["traffic"] * x["work_bytes"] / (gpu.cache_gbps * c["cache"]) / 1e3
    memory = (memory_us(x["work_bytes"], gpu, c) + again) * (1 + c["fill"] * np.minimum(gpu.sms / blocks, 64.0))
    return Terms(c["floor"] / gpu.clock_mhz + 0 * cycles, cut.passes * cycles / gpu.clock_mhz, memory)


def _mean_keys(x: Columns) -> Floats:
    """Keys that a query attends to on average where there is no window."""
    before = np.maximum(x["kv_len"] - x["q_len"], 0)
    return np.asarray(np.where(x["causal"] > 0, before + np.minimum(x["q_len"], x["kv_len"]) / 2, x["kv_len"]))


def decode_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """Attention of a few queries: the KV cache streamed, split over the SMs, heads of one group together.

    Where the kernel takes heads one by one, each reads the group's keys again, from the cache.
    """
    keys = 64 * np.ceil(x["reach"] / 64)
    reads = x["key_reads_on_mma"] if gpu.tensor_class == "mma" else x["key_reads"]
    units = x["batch"] * x["kv_heads"] * reads
    grouped = np.ceil(x["heads"] / x["kv_heads"] / reads * x["q_len"] / 16) * 16
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    products = 4.0 * units * keys * grouped * x["head_dim"] / (flops_per_cycle * c["compute"])
    handling = units * (keys * c["per_key"] + c["per_block"])
    serial = c["serial"] * keys ** c["serial_power"]
    compute = ((products + handling) / gpu.sms + serial) / gpu.clock_mhz
    blocks = units * np.maximum(keys / 256, 1.0)
    memory = cyclic_us(x["work_bytes"], gpu, c) * (1 + c["fill"] * np.minimum(gpu.sms / blocks, 64.0))
    again = c["again"] * x["work_bytes"] * (reads - 1) / (gpu.cache_gbps * c["cache"]) / 1e3
    return Terms(c["floor"] / gpu.clock_mhz + 0 * compute, compute, memory + again)
