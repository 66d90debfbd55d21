"""Gradient boosting of symmetric trees, in numpy: small, deterministic, and fast to evaluate without a library."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from predictors.law import Array
from predictors.residual import Trees

BINS = 48


def boost(
    features: npt.NDArray[np.float32],
    target: Array,
    weight: Array,
    *,
    trees: int,
    depth: int = 6,
    rate: float = 0.12,
    huber: float = 0.3,
    ridge: float = 20.0,
    rows_per_tree: int = 6000,
    seed: int = 0,
) -> Trees:
    """Fits trees whose sum follows the target, with Huber's loss.

    Args:
        features: float32 (features, rows).
        target: (rows,), logarithms of measured over modelled time.
        weight: (rows,), with mean 1.
        trees: how many.
        depth: levels of each; a tree has 2**depth leaves.
        rate: learning rate.
        huber: errors beyond this count linearly.
        ridge: pull of a leaf's value to zero, in rows.
        rows_per_tree: rows drawn for each tree.
        seed: of the draw.
    """
    edges = _edges(features)
    binned = np.stack([np.searchsorted(e, f, side="left") for e, f in zip(edges, features, strict=True)])
    binned = np.ascontiguousarray(binned.T.astype(np.int32)) + np.arange(len(edges), dtype=np.int32) * BINS
    draw = np.random.default_rng(seed)
    fitted = np.zeros(len(target))
    splits = np.zeros((trees, depth), dtype=np.int32)
    leaves = np.zeros((trees, 2**depth), dtype=np.float32)
    for t in range(trees):
        rows = draw.choice(len(target), min(rows_per_tree, len(target)), replace=False)
        gradient = np.clip(target[rows] - fitted[rows], -huber, huber) * weight[rows]
        splits[t] = _grow(binned[rows], gradient, weight[rows], depth, len(edges) * BINS, ridge)
        leaf = _leaf(binned, splits[t])
        error = np.clip(target - fitted, -huber, huber) * weight
        total = np.bincount(leaf, error, 2**depth)
        leaves[t] = rate * total / (np.bincount(leaf, weight, 2**depth) + ridge)
        fitted += leaves[t][leaf]
    feature, cut = splits // BINS, splits % BINS
    return Trees(feature.astype(np.int16), np.stack(edges)[feature, cut], leaves)


def _edges(features: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    """Thresholds of each feature: quantiles, padded so that every feature has BINS of them."""
    out = []
    for row in features:
        values = np.unique(row)
        middles = (values[1:] + values[:-1]) / 2
        if len(middles) >= BINS:
            middles = np.unique(np.quantile(row, np.linspace(0, 1, BINS + 1)[1:], method="nearest"))
        out.append(np.append(middles, np.full(BINS - len(middles), np.inf)).astype(np.float32)[:BINS])
    return out


def _grow(
    binned: npt.NDArray[np.int32], gradient: Array, weight: Array, depth: int, width: int, ridge: float
) -> npt.NDArray[np.int32]:
    """The split of each level: the (feature, threshold) that helps most when all leaves take it."""
    leaf = np.zeros(len(gradient), dtype=np.int32)
    flat_gradient = np.repeat(gradient, binned.shape[1])
    flat_weight = np.repeat(weight, binned.shape[1])
    splits = np.zeros(depth, dtype=np.int32)
    for level in range(depth):
        index = (binned + (leaf * width)[:, None]).ravel()
        shape = (2**level, -1, BINS)
        size = width * 2**level
        g = np.bincount(index, flat_gradient, size + 1)[:size].reshape(shape).cumsum(axis=2)
        w = np.bincount(index, flat_weight, size + 1)[:size].reshape(shape).cumsum(axis=2)
        total_g = np.bincount(leaf, gradient, 2**level)[:, None, None]
        total_w = np.bincount(leaf, weight, 2**level)[:, None, None]
        gain = g**2 / (w + ridge) + (total_g - g) ** 2 / (total_w - w + ridge)
        splits[level] = int(gain.sum(axis=0).argmax())
        leaf = leaf | (_beyond(binned, splits[level]) << level)
    return splits


def _beyond(binned: npt.NDArray[np.int32], split: int) -> npt.NDArray[np.int32]:
    return (binned[:, split // BINS] > split).astype(np.int32)


def _leaf(binned: npt.NDArray[np.int32], splits: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    leaf = np.zeros(len(binned), dtype=np.int32)
    for level, split in enumerate(splits):
        leaf |= _beyond(binned, int(split)) << level
    return leaf
