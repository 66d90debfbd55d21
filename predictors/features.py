"""Compute the dimensionless features of a kernel on a GPU, which are the inputs of the learned correction."""

from __future__ import annotations

import math

import numpy as np

from predictors.arrays import Columns, Floats, Frameworks, Singles
from predictors.attention_stacks import SERVING_FRAMEWORKS
from predictors.hardware import Hardware
from predictors.kernel_identity import ATTENTION_LAWS, list_names
from predictors.laws.law import LAWS
from predictors.laws.terms import LatencyTerms, combine_overlapped_us

BOARD_FEATURES = 3
"""The last features, which tell the boards of one architecture apart. Trees for unmeasured GPUs don't see them."""


def compute_features(law: str, frameworks: Frameworks, x: Columns, terms: LatencyTerms, gpu: Hardware) -> Singles:
    """Features of rows that share a law.

    Rates enter only as ratios of times, SMs as waves, caches as ratios of sizes: no feature identifies a GPU, but for
    the last `BOARD_FEATURES`. A kernel that does a part of an op gets the features of the whole op, because a library's
    kernel for a part of a large convolution does not behave like one for a small convolution.

    Returns:
        float32 (features, rows).
    """
    x, terms = LAWS[law].scale_to_op(x, terms)
    compute, memory, floor = (np.maximum(t, 1e-6) for t in (terms.compute_us, terms.memory_us, terms.floor_us))
    rows = [
        np.log(combine_overlapped_us(compute, memory) / floor),
        np.log(compute / memory),
        np.log(x["work_bytes"] / gpu.cache_bytes),
        np.log(np.maximum(x["work_flops"], 1.0) / x["work_bytes"]),
        np.log(terms.time_us * gpu.clock_mhz),
        *_compute_shape_features(law, x, gpu),
        *(np.zeros_like(compute) if frameworks is None else frameworks == name for name in list_names(law)),
        *(x[f"of_{name}"] for name in SERVING_FRAMEWORKS),
        x["release"],
        *(np.full_like(compute, value) for value in _compute_board_features(gpu)),
    ]
    return np.stack([row.astype(np.float32) for row in rows])


def _compute_board_features(gpu: Hardware) -> tuple[float, float, float]:
    """Watts and bytes/s over the rate of the matrix units, and exponentials per clock."""
    rate = gpu.get_tflops("fp16")
    return math.log(gpu.gpu.tdp_w / rate), math.log(gpu.bandwidth_gbps / rate), gpu.exponentials_per_clock


def _compute_shape_features(law: str, x: Columns, gpu: Hardware) -> list[Floats]:
    kind = law.split(" ")[0]
    if law == "conv fp32":
        return [*_compute_gemm_features(x, gpu), *_compute_image_features(x)]
    if kind in ("gemm", "conv"):
        return _compute_gemm_features(x, gpu)
    if kind in ATTENTION_LAWS:
        return [*_compute_attention_features(x, gpu), *([x["backward"]] if law == "sequence" else [])]
    if kind == "moe":
        return _compute_moe_features(x, gpu)
    few = np.log(np.minimum(x["blocks"] / gpu.sms, 64.0))
    kind_of = (x[name] for name in ("uneven", "indexed", "across"))
    return [*(np.log(x[name]) for name in ("rows", "cols", "size")), np.log(x["rows"] / gpu.sms), few, *kind_of]


def _compute_gemm_features(x: Columns, gpu: Hardware) -> list[Floats]:
    m, n, k = x["m"], x["n"], x["k"]
    tiles = [x["batch"] * np.ceil(m / t) * np.ceil(n / u) / gpu.sms for t, u in ((128, 256), (128, 128), (64, 64))]
    return [
        *(np.log(v) for v in (m, n, k, x["batch"])),
        *(np.log(t) for t in tiles),
        *(t / np.ceil(t) for t in tiles),
        m / (128 * np.ceil(m / 128)),
        n / (128 * np.ceil(n / 128)),
        _compute_alignment(n),
        _compute_alignment(k),
    ]


def _compute_image_features(x: Columns) -> list[Floats]:
    """Sizes by which cuDNN chooses an algorithm, and how much of its tiles is filled."""
    tiles = ((4, 4), (8, 16))
    filled = [x["height"] * x["width"] / (h * np.ceil(x["height"] / h) * w * np.ceil(x["width"] / w)) for h, w in tiles]
    return [*(np.log(x[name]) for name in ("images", "inputs", "filters")), *filled]


def _compute_attention_features(x: Columns, gpu: Hardware) -> list[Floats]:
    blocks = x["batch"] * x["heads"] * np.ceil(x["q_len"] / 128) / gpu.sms
    units = x["batch"] * x["kv_heads"] / gpu.sms
    return [
        *(np.log(x[name]) for name in ("batch", "heads", "q_len", "kv_len", "head_dim", "reach")),
        np.log(x["heads"] / x["kv_heads"]),
        np.log1p(x["window"]),
        np.log(x["kv_size"] / x["size"]),
        x["size"],
        np.log(blocks),
        blocks / np.ceil(blocks),
        np.log(units),
        units / np.ceil(units),
        x["reach"] / (128 * np.ceil(x["reach"] / 128)),
    ]


def _compute_moe_features(x: Columns, gpu: Hardware) -> list[Floats]:
    inter = x["inter"] / x["tp"]
    experts = x["experts"] / x["ep"]
    per_expert = x["tokens"] * x["topk"] / x["experts"]
    active = -np.expm1(-per_expert)
    return [
        *(np.log(x[name]) for name in ("tokens", "topk", "experts", "hidden", "tp", "ep")),
        np.log(inter),
        np.log(experts),
        np.log(per_expert),
        np.log(experts * np.ceil(per_expert / 128) * np.ceil(inter / 128) / gpu.sms),
        x["skewed"],
        np.log(x["inter"]),
        np.log(experts * active),
        np.log(per_expert / active),
    ]


def _compute_alignment(size: Floats) -> Floats:
    """log2 of the largest power of two, up to 64, that divides a size."""
    whole = size.astype(np.int64)
    return np.asarray(np.log2(np.minimum(whole & -whole, 64)))
