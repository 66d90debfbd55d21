"""Compute the terms of linear attention in chunks, of sparse attention, and of the indexer that selects its keys."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Columns
from predictors.hardware import Hardware
from predictors.laws.terms import Constants, LatencyTerms, combine_overlapped_us, compute_memory_us, count_waves
from predictors.linear_attention import CHUNK_TOKENS


def compute_chunk_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Linear attention over prompts: products inside of chunks, states from one chunk to the next.

    - Heads and sequences run side by side, and a sequence's chunks one after the other, ``per_chunk`` clocks each,
      however few heads there are.
    - The products are small: ``compute`` is a twelfth of the peak.
    - What one kernel hands to the next goes through memory: ``passes`` times what the layer reads and writes.
    """
    chunks = np.ceil(x["q_len"] / CHUNK_TOKENS)
    in_turn = chunks * c["per_chunk"] / gpu.clock_mhz
    units = x["batch"] * x["heads"] / gpu.sms
    products = x["work_flops"] / (x["tflops"] * c["compute"] * 1e6)
    compute = combine_overlapped_us(products, in_turn * np.maximum(units, 1.0))
    memory = compute_memory_us(x["work_bytes"] * c["passes"], gpu, c)
    return LatencyTerms(c["floor"] / gpu.clock_mhz + 0 * compute, compute, memory)


def compute_sparse_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Attention to the keys that an indexer selected, whose block handles all heads of one query.

    A block gathers its keys one by one, so that they come at a rate of the cache's, and goes through all of them
    however few there are: even one query takes as long as one for each SM.
    """
    queries = x["batch"] * x["q_len"]
    waves = count_waves(queries / gpu.sms, c)
    per_query = x["work_flops"] / queries / (x["tflops"] / gpu.sms * c["compute"] * 1e6)
    gathered = x["window"] * x["head_dim"] * x["kv_size"] / (gpu.cache_gbps / gpu.sms * c["cache"]) / 1e3
    compute = waves * combine_overlapped_us(per_query, gathered)
    memory = x["work_bytes"] / (gpu.bandwidth_gbps * c["memory"]) / 1e3
    return LatencyTerms(c["floor"] / gpu.clock_mhz + 0 * compute, compute, memory)


def compute_indexer_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Scores of queries and keys, summed up over heads: a product whose result isn't written, with a sum behind it."""
    tiles = x["batch"] * np.ceil(x["m"] / 128) * np.ceil(x["n"] / 128) / gpu.sms
    uneven = count_waves(tiles, c) / tiles
    products = x["work_flops"] / (x["tflops"] * c["compute"] * 1e6)
    sums = x["batch"] * x["m"] * x["n"] / (gpu.vector_tflops * c["sum"] * 1e6)
    memory = compute_memory_us(x["work_bytes"], gpu, c)
    return LatencyTerms(c["floor"] / gpu.clock_mhz + 0 * memory, (products + sums) * uneven, memory)
