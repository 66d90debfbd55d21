"""Fit gradient-boosted symmetric trees: small, deterministic, and fast to evaluate without a library."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from predictors.arrays import Floats, Singles
from predictors.corrections import SymmetricTrees

HISTOGRAM_BINS = 48


def boost(
    features: Singles,
    target: Floats,
    weight: Floats,
    *,
    trees: int,
    depth: int = 6,
    rate: float = 0.12,
    huber: float = 0.1,
    ridge: float = 10.0,
    rows_per_tree: int = 12000,
    passes: int = 0,
    pass_rate: float = 0.1,
    seed: int = 0,
) -> SymmetricTrees:
    """Fits trees whose sum follows the target, with Huber's loss.

    While later trees are added, earlier ones stay unchanged. After the last one, ``passes`` passes over all trees
    correct their leaves.

    Args:
        features: float32 (features, rows).
        target: log(measured / modelled), (rows,).
        weight: Weights with mean 1, (rows,).
        trees: Number of trees.
        depth: Levels of each tree, at most 8; a tree has 2**depth leaves.
        rate: Learning rate.
        huber: Errors beyond this count linearly.
        ridge: Strength of the shrinkage of a leaf's value to zero, in rows.
        rows_per_tree: Rows drawn for each tree.
        passes: Number of corrections of the leaves of all trees.
        pass_rate: Learning rate of these corrections.
        seed: Seed of the draws.
    """
    edges = _compute_bin_edges(features)
    binned = np.stack([np.searchsorted(e, f, side="left") for e, f in zip(edges, features, strict=True)])
    binned = np.ascontiguousarray(binned.astype(np.uint8))
    draw = np.random.default_rng(seed)
    fitted = np.zeros(len(target))
    splits = np.zeros((trees, depth), dtype=np.int64)
    leaves = np.zeros((trees, 2**depth), dtype=np.float32)
    leaf_of = np.zeros((trees, len(target)), dtype=np.uint8)

    def learn(t: int, rate: float) -> None:
        error = np.clip(target - fitted, -huber, huber) * weight
        total = np.bincount(leaf_of[t], error, 2**depth)
        step = (rate * total / (np.bincount(leaf_of[t], weight, 2**depth) + ridge)).astype(np.float32)
        leaves[t] += step
        fitted[:] += step[leaf_of[t]]

    for t in range(trees):
        rows = draw.choice(len(target), min(rows_per_tree, len(target)), replace=False)
        gradient = np.clip(target[rows] - fitted[rows], -huber, huber) * weight[rows]
        splits[t] = _grow_tree(np.ascontiguousarray(binned[:, rows]), gradient, weight[rows], depth, ridge)
        leaf_of[t] = _assign_leaves(binned, splits[t])
        learn(t, rate)
    for _ in range(passes):
        for t in draw.permutation(trees):
            learn(int(t), pass_rate)
    feature, cut = splits // HISTOGRAM_BINS, splits % HISTOGRAM_BINS
    return SymmetricTrees(feature.astype(np.int16), np.stack(edges)[feature, cut], leaves)


def _compute_bin_edges(features: Singles) -> list[Singles]:
    """Thresholds of each feature: quantiles, padded so that every feature has BINS of them."""
    out = []
    for row in features:
        values = np.unique(row)
        middles = (values[1:] + values[:-1]) / 2
        if len(middles) >= HISTOGRAM_BINS:
            middles = np.unique(np.quantile(row, np.linspace(0, 1, HISTOGRAM_BINS + 1)[1:], method="nearest"))
        out.append(
            np.append(middles, np.full(HISTOGRAM_BINS - len(middles), np.inf)).astype(np.float32)[:HISTOGRAM_BINS]
        )
    return out


def _grow_tree(
    binned: npt.NDArray[np.uint8], gradient: Floats, weight: Floats, depth: int, ridge: float
) -> npt.NDArray[np.int64]:
    """Return the split of each level: the (feature, threshold) with the largest gain when all leaves use it."""
    leaf = np.zeros(len(gradient), dtype=np.int64)
    splits = np.zeros(depth, dtype=np.int64)
    for level in range(depth):
        g, w = (sums.cumsum(axis=2) for sums in _sum_histograms(binned, leaf, gradient, weight, 2**level))
        total_g = np.bincount(leaf, gradient, 2**level)[:, None, None]
        total_w = np.bincount(leaf, weight, 2**level)[:, None, None]
        gain = g**2 / (w + ridge) + (total_g - g) ** 2 / (total_w - w + ridge)
        splits[level] = int(gain.sum(axis=0).argmax())
        leaf |= _compute_split_bits(binned, splits[level]) << level
    return splits


@numba.njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _sum_histograms(
    binned: npt.NDArray[np.uint8], leaf: npt.NDArray[np.int64], gradient: Floats, weight: Floats, leaves: int
) -> tuple[Floats, Floats]:
    """Sum gradients and weights by (leaf, feature, bin)."""
    features, rows = binned.shape
    g, w = np.zeros((leaves, features, HISTOGRAM_BINS)), np.zeros((leaves, features, HISTOGRAM_BINS))
    for feature in range(features):
        for row in range(rows):
            at = binned[feature, row]
            if at < HISTOGRAM_BINS:
                g[leaf[row], feature, at] += gradient[row]
                w[leaf[row], feature, at] += weight[row]
    return g, w


def _compute_split_bits(binned: npt.NDArray[np.uint8], split: int) -> npt.NDArray[np.int64]:
    return np.asarray(binned[split // HISTOGRAM_BINS] > split % HISTOGRAM_BINS, dtype=np.int64)


def _assign_leaves(binned: npt.NDArray[np.uint8], splits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    leaf = np.zeros(binned.shape[1], dtype=np.int64)
    for level, split in enumerate(splits):
        leaf |= _compute_split_bits(binned, int(split)) << level
    return leaf
