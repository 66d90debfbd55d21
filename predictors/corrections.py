"""The learned correction of a law: dimensionless features of kernels, and the trees that map them."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from predictors.arrays import Columns, Floats, Frameworks, Ints, Singles
from predictors.hardware import Hardware
from predictors.kernel_identity import ATTENTION_LAWS, SERVING_FRAMEWORKS, list_names
from predictors.kernels import HYPER_LAW, INDEXER_LAW, SPARSE_LAW
from predictors.laws.law import LAWS
from predictors.laws.terms import LatencyTerms, combine_overlapped_us

MIXER_KINDS = ("linear", SPARSE_LAW, INDEXER_LAW, HYPER_LAW)
"""First words of the laws of linear and sparse attention and of mHC."""
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
    if kind == "miopen":
        return [*_compute_gemm_features(x, gpu), *_compute_image_features(x), *_compute_window_features(x)]
    if kind in ("gemm", "conv"):
        return _compute_gemm_features(x, gpu)
    if kind in ATTENTION_LAWS:
        return [*_compute_attention_features(x, gpu), *([x["backward"]] if law == "sequence" else [])]
    if kind == "moe":
        return _compute_moe_features(x, gpu)
    if kind in MIXER_KINDS:
        return _compute_mixer_features(x, gpu)
    few = np.log(np.minimum(x["blocks"] / gpu.sms, 64.0))
    kind_of = (x[name] for name in ("uneven", "indexed", "across"))
    return [*(np.log(x[name]) for name in ("rows", "cols", "size")), np.log(x["rows"] / gpu.sms), few, *kind_of]


def _compute_mixer_features(x: Columns, gpu: Hardware) -> list[Floats]:
    units = x["batch"] * x["heads"] / gpu.sms
    names = ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "m", "n", "rows", "cols", "size")
    return [*(np.log(x[name]) for name in names), np.log(units), units / np.ceil(units), x["mixes_out"]]


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


def _compute_window_features(x: Columns) -> list[Floats]:
    """What else MIOpen chooses by: sizes of images and windows, strides as the ratio of the images, the pass."""
    of_data = x["of_data"] > 0
    pixels, sides = x["images"] * x["height"] * x["width"] * x["batch"], (x["filters"], x["inputs"])
    small, large = (pixels * np.where(of_data, one, other) for one, other in (sides[::-1], sides))
    weights = x["batch"] * x["inputs"] * x["filters"] * x["window_size"]
    shrinking = np.clip((x["work_bytes"] / x["size"] - weights - small) / large, 0.01, 1e4)
    return [
        *(np.log(x[name]) for name in ("height", "width", "window_size", "size")),
        np.log(shrinking),
        x["of_data"],
        x["of_weights"],
        _compute_alignment(x["inputs"]),
        _compute_alignment(x["filters"]),
        np.log(x["images"] * x["height"] * x["width"]),
    ]


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


MAX_LEAF_STEPS = 127
"""A file stores a tree's leaves as whole steps from -127 to 127, each in one byte."""
SMALL_BATCH_ROWS = 1024
"""Up to which number of rows it is quicker to take many trees at once."""


@dataclass(frozen=True)
class SymmetricTrees:
    """Symmetric trees: every node of a level asks the same question, so a leaf's number is a few answers.

    Attributes:
        feature: int16 (trees, depth), the feature of each level.
        threshold: float32 (trees, depth). The bit of the level is set where the feature is greater.
        leaf: float32 (trees, 2**depth), the addition of each tree to the logarithm of the time.
    """

    feature: npt.NDArray[np.int16]
    threshold: Singles
    leaf: Singles

    @functools.cached_property
    def unique_splits(self) -> tuple[npt.NDArray[np.int16], Singles, Ints]:
        """Feature and threshold of each question, and which of them each level of each tree asks: most ask the same."""
        key = self.feature.astype(np.int64) << 32 | self.threshold.view(np.uint32)
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        return self.feature.ravel()[first], self.threshold.ravel()[first], which.reshape(key.shape)

    def predict(self, features: Singles) -> Floats:
        """Return the sum of the trees.

        Args:
            features: float32 (features, rows), each of its rows contiguous.

        Returns:
            float64 (rows,).
        """
        return (self._predict_trees_together if features.shape[1] <= SMALL_BATCH_ROWS else self._predict_tree_by_tree)(
            features
        ).astype(np.float64)

    def _predict_tree_by_tree(self, features: Singles) -> Singles:
        """Tree by tree: all that a tree needs stays in the CPU's cache."""
        feature, threshold, which = self.unique_splits
        answers = np.empty((feature.size, features.shape[1]), dtype=np.bool_)
        for column, least, answer in zip(feature.tolist(), threshold, answers, strict=True):
            np.greater(features[column], least, out=answer)
        bits = list(answers.view(np.uint8))
        total, value = np.zeros((2, features.shape[1]), dtype=np.float32)
        leaf = np.empty(features.shape[1], dtype=np.uint8)
        # Horner's scheme from the last level down: doubling is cheaper than a shift by the level.
        for (last, *others), values in zip(which[:, ::-1].tolist(), self.leaf, strict=True):
            np.copyto(leaf, bits[last])
            for question in others:
                np.add(leaf, leaf, out=leaf)
                np.bitwise_or(leaf, bits[question], out=leaf)
            values.take(leaf, out=value, mode="clip")
            np.add(total, value, out=total)
        return total

    def _predict_trees_together(self, features: Singles) -> Singles:
        """Many trees at once: numpy's time per call would be most of the time."""
        feature, threshold, which = self.unique_splits
        bits = (features[feature] > threshold[:, None]).view(np.uint8)
        total = np.zeros(features.shape[1], dtype=np.float32)
        step = max(SMALL_BATCH_ROWS * 64 // max(features.shape[1], 1), 1)
        for first in range(0, len(self.leaf), step):
            values = self.leaf[first : first + step]
            last, *others = which[first : first + step, ::-1].T
            leaf = bits[last]
            for question in others:
                np.add(leaf, leaf, out=leaf)
                np.bitwise_or(leaf, bits[question], out=leaf)
            starts = np.arange(len(values), dtype=np.int32)[:, None] * values.shape[1]
            total += values.ravel()[leaf + starts].sum(axis=0)
        return total


def compute_leaf_steps(leaf: Singles) -> Singles:
    """The step of each tree of which its leaves are stored as whole multiples, (trees,).

    Steps are powers of two, so that float32 holds the sum of all trees exactly, in whatever order they are added.
    """
    largest = np.abs(leaf).max(axis=1)
    return np.exp2(np.ceil(np.log2(np.where(largest > 0, largest, 1.0) / MAX_LEAF_STEPS))).astype(np.float32)


def to_arrays(name: str, correction: SymmetricTrees) -> dict[str, npt.NDArray[Any]]:
    """A correction as arrays to store: each question once, a byte a leaf."""
    feature, threshold, which = correction.unique_splits
    step = compute_leaf_steps(correction.leaf)[:, None]
    leaf = np.rint(correction.leaf / step).astype(np.int8)
    stored = {"feature": feature, "threshold": threshold, "question": which.astype(np.uint16), "leaf": leaf}
    return {f"{name}/{part}": array for part, array in {**stored, "step": step}.items()}


class CorrectionFile(Mapping[str, SymmetricTrees]):
    """Corrections of a file, each unpacked when it is first asked for.

    Args:
        path: An .npz file with the arrays of ``to_arrays``.
    """

    def __init__(self, path: Path) -> None:
        self._arrays = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        self._unpacked: dict[str, SymmetricTrees] = {}

    def __getitem__(self, name: str) -> SymmetricTrees:
        if name not in self._unpacked:
            parts = ("feature", "threshold", "question", "leaf", "step")
            feature, threshold, question, leaf, step = (self._arrays[f"{name}/{part}"] for part in parts)
            self._unpacked[name] = SymmetricTrees(feature[question], threshold[question], leaf * step)
        return self._unpacked[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(array.removesuffix("/leaf") for array in self._arrays.files if array.endswith("/leaf")))

    def __len__(self) -> int:
        return sum(1 for _ in self)
