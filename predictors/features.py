"""Dimensionless features of a kernel on a GPU: what the learned correction may look at."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats, Frameworks, Singles
from predictors.law import LAWS
from predictors.machine import Machine
from predictors.stacks import ATTENTION_STACKS, SERVING_FRAMEWORKS
from predictors.terms import Columns, Terms, overlap

ATTENTION_LAWS = ("prefill", "encoder", "sequence", "decode")


def features(law: str, frameworks: Frameworks, x: Columns, terms: Terms, gpu: Machine) -> Singles:
    """Features of rows that share a law.

    Nothing that identifies a GPU: rates only enter as ratios of times, SMs as waves, caches as shares. Kernels that
    each do a share of an op look like the whole: what a library does of a large convolution isn't a small one.

    Returns:
        float32 (features, rows).
    """
    x, terms = LAWS[law].whole(x, terms)
    compute, memory, floor = (np.maximum(t, 1e-6) for t in (terms.compute_us, terms.memory_us, terms.floor_us))
    rows = [
        np.log(overlap(compute, memory) / floor),
        np.log(compute / memory),
        np.log(x["work_bytes"] / gpu.cache_bytes),
        np.log(np.maximum(x["work_flops"], 1.0) / x["work_bytes"]),
        np.log(terms.time_us * gpu.clock_mhz),
        *_shape(law, x, gpu),
        *(np.zeros_like(compute) if frameworks is None else frameworks == name for name in frameworks_of(law)),
    ]
    return np.stack([row.astype(np.float32) for row in rows])


def frameworks_of(law: str) -> tuple[str, ...]:
    """The frameworks and stacks that a law's kernels may be of."""
    return SERVING_FRAMEWORKS + ATTENTION_STACKS if law in ATTENTION_LAWS else SERVING_FRAMEWORKS


def _shape(law: str, x: Columns, gpu: Machine) -> list[Floats]:
    kind = law.split(" ")[0]
    if law == "conv fp32":
        return [*_product(x, gpu), *_images(x)]
    if kind in ("gemm", "conv"):
        return _product(x, gpu)
    if kind in ATTENTION_LAWS:
        return [*_attention(x, gpu), *([x["backward"]] if law == "sequence" else [])]
    if kind == "moe":
        return _moe(x, gpu)
    few = np.log(np.minimum(x["blocks"] / gpu.sms, 64.0))
    kind_of = (x[name] for name in ("uneven", "indexed", "across"))
    return [*(np.log(x[name]) for name in ("rows", "cols", "size")), np.log(x["rows"] / gpu.sms), few, *kind_of]


def _product(x: Columns, gpu: Machine) -> list[Floats]:
    m, n, k = x["m"], x["n"], x["k"]
    tiles = [x["batch"] * np.ceil(m / t) * np.ceil(n / u) / gpu.sms for t, u in ((128, 256), (128, 128), (64, 64))]
    return [
        *(np.log(v) for v in (m, n, k, x["batch"])),
        *(np.log(t) for t in tiles),
        *(t / np.ceil(t) for t in tiles),
        m / (128 * np.ceil(m / 128)),
        n / (128 * np.ceil(n / 128)),
        _alignment(n),
        _alignment(k),
    ]


def _images(x: Columns) -> list[Floats]:
    """Sizes by which cuDNN chooses an algorithm, and how much of its tiles is filled."""
    tiles = ((4, 4), (8, 16))
    filled = [x["height"] * x["width"] / (h * np.ceil(x["height"] / h) * w * np.ceil(x["width"] / w)) for h, w in tiles]
    return [*(np.log(x[name]) for name in ("images", "inputs", "filters")), *filled]


def _attention(x: Columns, gpu: Machine) -> list[Floats]:
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


def _moe(x: Columns, gpu: Machine) -> list[Floats]:
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


def _alignment(size: Floats) -> Floats:
    """log2 of the largest power of two, up to 64, that divides a size."""
    whole = size.astype(np.int64)
    return np.asarray(np.log2(np.minimum(whole & -whole, 64)))
