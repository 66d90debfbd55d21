"""Compute the terms of attention: many queries tiled over the SMs, or the KV cache streamed for a few queries."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from predictors.arrays import Columns, Floats
from predictors.hardware import Hardware
from predictors.kernels import DTYPE_BYTES
from predictors.laws.terms import (
    Constants,
    LatencyTerms,
    Tiles,
    combine_overlapped_us,
    compute_cyclic_us,
    compute_memory_us,
    count_waves,
)

BLOCK_QUERIES = 128
"""That a block works on."""
DECODE_BLOCK_KEYS = 256
"""That a block of decoding works on."""
MIN_BLOCK_KEYS = 64
"""That a block works on at once and pads fewer to. Engines' kernels only do in fp32, as CUTLASS's: with all formats
padded so, those measured come out as well in the base and up to 2 points worse on GPUs left out."""
LATENT_ROWS, LATENT_ROWS_ON_MMA = 64, 16
"""Rows of a matrix instruction of a warp group (wgmma), and of a warp (mma.sync). One head of latent attention takes an
H200 as long as 64 (TensorRT-LLM 1.3.0rc20: 44 us of 64 sequences of 2,048 keys in fp8, 415 TFLOP/s of 64 rows)."""
LONE_BLOCK_GBPS = 27.0
"""Keys and values that a block of FlashAttention 2 reads at most when it goes through them alone: the median over head
widths of 64 to 256 on an A100 (22), L40S (28) and RTX PRO 6000 (26) in vLLM, 1,000 keys to 131,000, fewer blocks than
SMs (aiconfigurator). Waiting for memory tile by tile limits it, so neither clock nor bandwidth changes it much."""
MAX_WHOLE_HEAD_DIM = 128
"""Widest heads whose gradients of keys and values stay with a whole block of keys in a backward pass."""
VECTOR_LANES = 128.0
"""Elements in fp32 that an SM works on in a clock."""
BACKWARD_BYTES_PER_QUERY_ELEMENT = 14.0
"""That kernels before and after a backward pass move for each element of the queries, which takes time of its own: the
output and its gradient are read and sums in fp32 cleared, then the sums read and the gradient written
(FlashAttention 2's flash_bwd_preprocess_kernel.h)."""


@dataclass(frozen=True)
class AttentionTiling:
    """How kernels cut attention up, arrays of one element a row, or one number for all.

    Attributes:
        queries: Queries per block.
        min_keys: Fewest keys per block; fewer are padded.
        key_cycles: Clock cycles that a block takes for a key.
        block_cycles: Clock cycles of a block beside those of its keys.
        causal_edge: Fraction of a block's queries by which its keys outnumber those of a query, where the mask ends.
        window_edge: The same where a window begins.
        masked_fraction: Fraction of the work on keys outside of the window that is done too, and masked.
    """

    queries: Floats | float
    min_keys: Floats | float
    key_cycles: Floats
    block_cycles: Floats | float
    causal_edge: Floats | float = 0.5
    window_edge: Floats | float = 0.0
    masked_fraction: Floats | float = 0.0


def compute_prefill_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Attention tiled over queries: matrix products plus exponentials, blocks of 128 queries."""
    return _compute_tiled_terms(x, gpu, c, _build_engine_tiling(x, gpu, c, c["masked"]))


def compute_encoder_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """The same over whole sequences, whose kernels leave out what is outside of a window."""
    return _compute_tiled_terms(x, gpu, c, _build_engine_tiling(x, gpu, c))


def compute_sequence_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """The same on tensors instead of a cache's pages; a backward pass has more work, and kernels around it."""
    build = _build_overlapped_tiling if gpu.has_newer_matrix_units else _build_serial_tiling
    terms = _compute_tiled_terms(x, gpu, c, build(x, gpu, c))
    around = BACKWARD_BYTES_PER_QUERY_ELEMENT * x["batch"] * x["q_len"] * x["heads"] * x["head_dim"]
    return replace(terms, compute_us=terms.compute_us + x["backward"] * compute_memory_us(around, gpu, c))


def _build_serial_tiling(x: Columns, gpu: Hardware, c: Constants) -> AttentionTiling:
    """Products, then exponentials; backward so many times both."""
    queries, passes = x["block_queries"], 1 + x["backward"] * (c["backward"] - 1)
    key_cycles = _compute_product_cycles(x, gpu, c, queries) + queries / gpu.exponentials_per_clock * c["softmax"]
    handling = c["per_block"] * queries / BLOCK_QUERIES
    return AttentionTiling(queries, MIN_BLOCK_KEYS, passes * key_cycles, passes * handling)


def _build_overlapped_tiling(x: Columns, gpu: Hardware, c: Constants) -> AttentionTiling:
    """Products while other warps work on the elements of theirs, as Hopper's and Blackwell's kernels do.

    - Their time is the root of the sum of squares: with it, cuDNN's forward passes in bf16 and fp8 with heads of 128
      and 160 on H200, GB200 and GB300 ask for one rate of exponentials.
    - A backward pass also computes the gradient of each element, on the vector units.
    - Above heads of 128 its sums in fp32 leave room for smaller blocks only: cuDNN takes 1.5 times as long for the work
      of keys of 192 and values of 128 in bf16. In fp8, with larger blocks to begin with, it doesn't.
    - In fp8 it goes through all keys before a query, however few are in the window: with one of 128 of 32,768 keys,
      cuDNN takes 60 times as long as forward (GB200, GB300).
    - Blackwell's blocks hold several times 128 queries, which see the keys of all of them.
    """
    backward, narrow = x["backward"], x["size"] < DTYPE_BYTES["bf16"]
    wide = np.where((x["head_dim"] > MAX_WHOLE_HEAD_DIM) & ~narrow, c["wide"], 1.0)
    queries = x["block_queries"]
    products = _compute_product_cycles(x, gpu, c, queries) * (1 + backward * (c["backward"] * wide - 1))
    elements = queries * (c["softmax"] / gpu.exponentials_per_clock + backward * c["gradient"] * wide / VECTOR_LANES)
    elements = elements * np.where(x["size"] == DTYPE_BYTES["mxfp8"], c["scaled"], 1.0)
    edge = np.where((backward > 0) | (gpu.tensor_class != "tcgen05"), 1.0, c["edge"])
    return AttentionTiling(
        queries,
        MIN_BLOCK_KEYS,
        np.sqrt(products**2 + elements**2),
        c["per_block"] * queries / BLOCK_QUERIES * (1 + backward * (c["backward"] - 1)),
        causal_edge=edge / 2,
        window_edge=edge / 2,
        masked_fraction=np.where(narrow, backward, 0.0),
    )


def _build_engine_tiling(x: Columns, gpu: Hardware, c: Constants, outside: Floats | float = 0.0) -> AttentionTiling:
    padded = np.where(x["size"] == DTYPE_BYTES["fp32"], MIN_BLOCK_KEYS, 0)
    exponentials = BLOCK_QUERIES / gpu.exponentials_per_clock * c["softmax"]
    key_cycles = _compute_product_cycles(x, gpu, c, BLOCK_QUERIES) + exponentials
    block_cycles = c["per_block"] * _pad_head_dim(x) / 128
    return AttentionTiling(BLOCK_QUERIES, padded, key_cycles, block_cycles, masked_fraction=outside)


def _compute_product_cycles(x: Columns, gpu: Hardware, c: Constants, queries: Floats | float) -> Floats:
    """Clock cycles of both products of a block of queries with one key."""
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    return np.asarray(4.0 * queries * _pad_head_dim(x) / (flops_per_cycle * c["compute"]))


def _pad_head_dim(x: Columns) -> Floats:
    return np.asarray(32 * np.ceil(x["head_dim"] / 32))


def _compute_tiled_terms(x: Columns, gpu: Hardware, c: Constants, cut: AttentionTiling) -> LatencyTerms:
    """Blocks of queries over their keys."""
    blocks = x["batch"] * x["heads"] * np.ceil(x["q_len"] / cut.queries)
    # A block covers all keys of its last query: half a block more than its queries have on average.
    rows, windowed = np.minimum(x["q_len"], cut.queries), x["window"] > 0
    edges = cut.causal_edge + cut.window_edge * windowed
    keys = np.minimum(x["attended"] / x["q_len"] + rows * edges, x["reach"])
    # The longest block has the keys of the last query and, with a sliding window, of the other queries of its block.
    longest = np.where(windowed, np.minimum(x["window"] + rows, x["reach"]), x["reach"])
    keys, longest = np.maximum(keys, cut.min_keys), np.maximum(longest, cut.min_keys)
    outside = cut.masked_fraction * windowed
    masked = np.minimum(_compute_mean_keys(x) + rows * cut.causal_edge, x["kv_len"])
    keys = keys + outside * np.maximum(masked - keys, 0) + c["prologue"]
    longest = np.asarray(longest + outside * np.maximum(x["kv_len"] - longest, 0) + c["prologue"])
    spread = blocks * keys / gpu.sms * count_waves(blocks / gpu.sms, c) / np.maximum(blocks / gpu.sms, 1.0)
    cycles = (
        combine_overlapped_us(spread, longest) * cut.key_cycles + np.maximum(blocks / gpu.sms, 1.0) * cut.block_cycles
    )
    # Each block of queries reads the keys again, but only its own part of the mask.
    again = c["traffic"] * (x["work_bytes"] - x["masks"]) / (gpu.cache_gbps * c["cache"]) / 1e3
    memory = (compute_memory_us(x["work_bytes"], gpu, c) + again) * (1 + c["fill"] * np.minimum(gpu.sms / blocks, 64.0))
    return LatencyTerms(c["floor"] / gpu.clock_mhz + 0 * cycles, cycles / gpu.clock_mhz, memory)


def _compute_mean_keys(x: Columns) -> Floats:
    """Keys that a query attends to on average where there is no window."""
    before = np.maximum(x["kv_len"] - x["q_len"], 0)
    return np.asarray(np.where(x["causal"] > 0, before + np.minimum(x["q_len"], x["kv_len"]) / 2, x["kv_len"]))


def compute_decode_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Attention of a few queries: the KV cache streamed, split over the SMs, heads of one group together.

    A kernel that handles heads one by one reads the keys of the group again for each head, from the cache.
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
    blocks = units * np.maximum(keys / DECODE_BLOCK_KEYS, 1.0)
    memory = compute_cyclic_us(x["work_bytes"], gpu, c) * (1 + c["fill"] * np.minimum(gpu.sms / blocks, 64.0))
    again = c["again"] * (x["work_bytes"] - x["masks"]) * (reads - 1) / (gpu.cache_gbps * c["cache"]) / 1e3
    return LatencyTerms(c["floor"] / gpu.clock_mhz + 0 * compute, compute, memory + again)


def compute_latent_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Latent attention of a few queries: all heads share one vector of the cache for each token, key and value at once.

    The heads are the rows of a block, padded to those of a matrix instruction; the keys are split over the SMs.
    """
    keys = 64 * np.ceil(x["reach"] / 64)
    least = LATENT_ROWS if gpu.has_newer_matrix_units else LATENT_ROWS_ON_MMA
    rows = least * np.ceil(x["heads"] * x["q_len"] / least)
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    products = 4.0 * x["batch"] * keys * rows * x["head_dim"] / (flops_per_cycle * c["compute"])
    handling = x["batch"] * (keys * c["per_key"] + c["per_block"])
    serial = c["serial"] * keys ** c["serial_power"]
    compute = ((products + handling) / gpu.sms + serial) / gpu.clock_mhz
    blocks = x["batch"] * np.maximum(keys / DECODE_BLOCK_KEYS, 1.0)
    memory = compute_cyclic_us(x["work_bytes"], gpu, c) * (1 + c["fill"] * np.minimum(gpu.sms / blocks, 64.0))
    return LatencyTerms(c["floor"] / gpu.clock_mhz + 0 * compute, compute, memory)


def choose_query_blocks(x: Columns, gpu: Hardware) -> Tiles:
    """Return the blocks of queries of attention that tiles them."""
    queries = x["block_queries"]
    blocks = x["batch"] * x["heads"] * np.ceil(x["q_len"] / queries)
    return Tiles(queries, np.full_like(queries, np.nan), np.ones_like(queries), blocks / gpu.sms)


def choose_key_blocks(x: Columns, gpu: Hardware) -> Tiles:
    """Return the blocks of decoding: the query heads of a key head together, its keys in parts."""
    reads = x["key_reads_on_mma"] if gpu.tensor_class == "mma" else x["key_reads"]
    unsplit = x["unsplit_on_mma"] if gpu.tensor_class == "mma" else x["unsplit"]
    together = np.ceil(x["heads"] / x["kv_heads"] / reads) * x["q_len"]
    parts = np.where(unsplit > 0, 1.0, np.ceil(x["reach"] / DECODE_BLOCK_KEYS))
    waves = x["batch"] * x["kv_heads"] * reads * parts / gpu.sms
    return Tiles(together, np.full_like(together, np.nan), parts, waves)


def compute_lone_block_us(x: Columns, gpu: Hardware) -> Floats:
    """The least time in which one block reads all keys of its head, where they aren't split; else 0."""
    unsplit = x["unsplit_on_mma"] if gpu.tensor_class == "mma" else x["unsplit"]
    return np.asarray(unsplit * 2 * x["reach"] * x["head_dim"] * x["kv_size"] / LONE_BLOCK_GBPS / 1e3)
