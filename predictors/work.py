"""Compute a kernel's work from its shape, FLOPs and compulsory memory traffic, and the least time that it takes."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from predictors.arrays import CategoricalColumn, Columns, Floats, encode_names, find_nulls
from predictors.hardware import ARITHMETIC_DTYPES, Hardware
from predictors.kernels import DTYPE_BYTES

BACKWARD_ATTENTION_FLOP_RATIO = 2.5
"""Backward over forward FLOPs of attention: five matrix products instead of two (FlashAttention-2, section 3.1)."""
DEFAULT_ELEMENT_BYTES = 2.0
"""Of an element whose format nobody knows."""
MAX_SCALES_RATIO = 1.1
"""How many times as many bytes a format takes for its scales, at most."""


def add_work(table: pl.DataFrame) -> pl.DataFrame:
    """Adds `work_flops` and `work_bytes`, null where the shape isn't known; a `share` of an op counts as that share.

    A multiply-add is 2 FLOPs. Bytes are compulsory: each input is read once, each output written once. Given ``bytes``
    replace the formula of GEMMs and convolutions (a weight may be narrower than the arithmetic). Given ``flops`` and
    ``bytes`` are the work of every family without a formula.

    Args:
        table: From ``kernels.add_law``.
    """
    encoded = encode_names(table[["family", "direction", "copy_kind", "dtype", "kv_dtype"]])
    family, direction, copies = (encoded[name] for name in ("family", "direction", "copy_kind"))
    size, kv_size = (encoded[name].map(get_element_bytes) for name in ("dtype", "kv_dtype"))
    input_size = encoded["dtype"].map(lambda dtype: get_element_bytes(ARITHMETIC_DTYPES.get(dtype or "", dtype)))
    passes = np.where(family.is_in("memcpy") & ~copies.is_in("HtoD", "DtoH", "PtoP"), 2.0, 1.0)
    flops, moved = np.nan_to_num(table["flops"].to_numpy()), table["bytes"].to_numpy() * passes
    for families, names, formula in _WORK_FORMULAS:
        mine = family.is_in(*families)
        if mine.any():
            x = {name: table[name].to_numpy()[mine] for name in names}
            x |= {"size": size[mine], "input_size": input_size[mine], "kv_size": kv_size[mine]}
            x |= {"backward": direction.is_in("backward")[mine]}
            flops[mine], moved[mine] = formula(x)
    work = np.where(find_nulls(table["law"]), np.nan, table["share"].to_numpy()) * np.stack([flops, moved])
    return table.hstack(
        [
            pl.Series(name, column, nan_to_null=True)
            for name, column in zip(("work_flops", "work_bytes"), work, strict=True)
        ]
    )


def get_element_bytes(dtype: str | None) -> float:
    """Bytes per element of a format."""
    return DTYPE_BYTES.get(dtype or "", DEFAULT_ELEMENT_BYTES)


def compare_element_bytes(here: CategoricalColumn, there: CategoricalColumn) -> Floats:
    """How many times as many bytes elements take in the formats on another GPU; the scales of a format don't count."""
    ratio = there.map(get_element_bytes) / here.map(get_element_bytes)
    return np.where(np.abs(np.log(ratio)) < math.log(MAX_SCALES_RATIO), 1.0, ratio)


def get_output_bytes(x: Columns) -> Floats:
    """Bytes per element of a matrix product's result: formats below 16 bit come out as 16 bit."""
    return np.maximum(x["size"], 2.0)


def count_attended_pairs(x: Columns) -> Floats:
    """Pairs of query and key of one head: the area under the causal mask and inside the window."""
    q, kv, window = x["q_len"], x["kv_len"], x["window"]
    reach = np.where(window > 0, np.minimum(window, kv), kv)
    before = np.maximum(kv - q, 0.0)
    growing = np.clip(reach - before, 0.0, q)
    causal = growing * before + growing * (growing + 1) / 2 + (q - growing) * reach
    return np.asarray(np.where(x["causal"], np.minimum(causal, q * reach), q * reach))


def count_attended_keys(x: Columns) -> Floats:
    """Keys that at least one query of a sequence attends to."""
    q, kv, window = x["q_len"], x["kv_len"], x["window"]
    return np.asarray(np.where(window > 0, np.minimum(window + q - 1, kv), kv))


def count_mask_bytes(x: Columns) -> Floats:
    """Bytes of attention's bias or mask, as far as its pairs are attended to; 0 where there is none."""
    each = x["mask_batch"] * x["mask_heads"] * x["mask_bytes"]
    return np.asarray(np.nan_to_num(each) * count_attended_pairs(x))


def _compute_gemm_work(x: Columns) -> tuple[Floats, Floats]:
    batch, m, n, k = x["batch"], x["m"], x["n"], x["k"]
    moved = batch * (m * k * x["input_size"] + k * n * x["size"] + m * n * get_output_bytes(x))
    return 2 * batch * m * n * k, np.where(np.isnan(x["bytes"]), moved, x["bytes"])


def _compute_attention_work(x: Columns) -> tuple[Floats, Floats]:
    flops = 4 * x["batch"] * x["heads"] * x["head_dim"] * count_attended_pairs(x)
    queries = x["batch"] * x["heads"] * x["q_len"] * x["head_dim"] * get_output_bytes(x)
    width = np.where(np.isnan(x["cache_width"]), 2 * x["head_dim"], x["cache_width"])
    keys = x["batch"] * x["kv_heads"] * count_attended_keys(x) * width * x["kv_size"]
    moved = np.where(x["backward"], 4 * queries + 2 * keys, 2 * queries + keys) + count_mask_bytes(x)
    return np.where(x["backward"], BACKWARD_ATTENTION_FLOP_RATIO * flops, flops), moved


def _compute_moe_work(x: Columns) -> tuple[Floats, Floats]:
    """Of a gated expert layer whose routing is even: the experts of one rank that get a token, the rows they get."""
    hidden, inter, experts = x["hidden"], x["inter"], x["experts"]
    rows = np.maximum(x["tokens"] * x["topk"] / x["ep"], 1.0)
    hit = 1 - (1 - 1 / np.maximum(experts, 1.0)) ** (x["tokens"] * x["topk"])
    active = np.maximum(experts / x["ep"] * hit, 1.0)
    weights = active * 3 * hidden * inter / x["tp"] * x["size"]
    return 6 * rows * hidden * inter / x["tp"], weights + 2 * rows / x["topk"] * hidden * 2


_WORK_FORMULAS = (
    (("gemm", "conv"), ("batch", "m", "n", "k", "bytes"), _compute_gemm_work),
    (
        ("attention",),
        (
            *("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "window", "causal", "cache_width"),
            *("mask_batch", "mask_heads", "mask_bytes"),
        ),
        _compute_attention_work,
    ),
    (("moe",), ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep"), _compute_moe_work),
)
"""Families, the columns that determine their work, and the formula."""


WINOGRAD_SAVING = 4.0
"""How many times fewer multiplications F(4x4, 3x3) needs (Lavin and Gray 2015); fp32 convolutions may use it."""

MATRIX_UNIT_LAWS = (
    *("gemm", "conv", "grouped", "miopen", "moe", "prefill", "encoder", "sequence", "decode", "latent"),
    *("linear", "sparse", "indexer"),
)

CACHE_RATE_HEADROOM = 1.3
"""How far over `Machine.cache_gbps` a real cache may run."""


def compute_bound_us(law: str, x: Columns, gpu: Hardware) -> Floats:
    """Least time of rows that share a law, in microseconds.

    The last-level cache may still hold the output of the previous kernel. So traffic that fits the cache counts at 1.3
    times the cache's rate, traffic of twice the cache size and more at the memory's rate, with linear interpolation in
    between.

    ``x`` is from ``columns.LawInputs.to_columns``.
    """
    size = x["work_bytes"]
    memory = size / x["copy_gbps"] / 1e3 if law == "memcpy" else compute_memory_bound_us(size, gpu)
    host = x["host_bytes"] / gpu.gpu.pcie_gbps / 1e3
    return np.asarray(np.maximum(np.maximum(compute_arithmetic_us(law, x, gpu), memory), host))


def compute_arithmetic_us(law: str, x: Columns, gpu: Hardware) -> Floats:
    """Least time of the rows' arithmetic, at the peak of the units that do it, in microseconds.

    ``x`` is from ``columns.LawInputs.to_columns``.
    """
    rate = x["tflops"] if uses_matrix_units(law) else gpu.vector_tflops
    return np.asarray(x["work_flops"] / _compute_winograd_saving(law, x) / (rate * 1e6))


def _compute_winograd_saving(law: str, x: Columns) -> Floats | float:
    """How many times fewer multiplications rows may need: MIOpen has Winograd's algorithms in every format."""
    if law == "conv fp32":
        return np.where(x["size"] == DTYPE_BYTES["fp32"], WINOGRAD_SAVING, 1.0)
    return np.where(x["window_size"] > 1, WINOGRAD_SAVING, 1.0) if law.startswith("miopen ") else 1.0


def uses_matrix_units(law: str) -> bool:
    """Whether a law's kernels compute on the matrix units, where a GPU has them; else on the vector units."""
    return law.split(" ")[0] in MATRIX_UNIT_LAWS


def compute_memory_bound_us(size_bytes: Floats, gpu: Hardware) -> Floats:
    """Least time to move bytes of which the cache may hold its fill already."""
    missing = np.clip(size_bytes / gpu.cache_bytes - 1, 0, 1)
    cache_gbps = CACHE_RATE_HEADROOM * gpu.cache_gbps
    return np.asarray(np.maximum(size_bytes * missing / gpu.gpu.bandwidth_gbps, size_bytes / cache_gbps) / 1e3)
