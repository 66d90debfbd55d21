"""Fit gradient-boosted symmetric trees: small, deterministic, and fast to evaluate without a library."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from predictors.arrays import Floats, Ints, Singles
from predictors.corrections import MAX_LEAF_STEPS, SymmetricTrees, compute_leaf_steps

HISTOGRAM_BINS = 48

Bins = npt.NDArray[np.uint8]
_compile = numba.njit(cache=True)


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
    correct their leaves. In the end, leaves are rounded to the whole steps of each tree that files store.

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
    edges = [_compute_bin_edges(row) for row in features]
    varied = np.array([at for at, edge in enumerate(edges) if edge.size] or [0])
    bins = np.stack([np.searchsorted(edges[at], features[at], side="left").astype(np.uint8) for at in varied])
    bins_by_row = np.ascontiguousarray(bins.T)
    left, row_weight = target.astype(np.float32), weight.astype(np.float32)
    draw = np.random.default_rng(seed)
    feature, cut = np.zeros((2, trees, depth), dtype=np.int64)
    leaves, leaf_weights = np.zeros((trees, 2**depth), dtype=np.float32), np.zeros((trees, 2**depth))
    leaf_of = np.zeros((trees, left.size), dtype=np.uint8)
    for t in range(trees):
        rows = draw.choice(left.size, min(rows_per_tree, left.size), replace=False, shuffle=False)
        gradient = np.clip(left[rows], -huber, huber) * row_weight[rows]
        feature[t], cut[t] = _grow_tree(bins_by_row[rows], gradient, row_weight[rows], depth, ridge)
        _assign_leaves(bins, feature[t], cut[t], leaf_of[t])
        leaf_weights[t] = np.bincount(leaf_of[t], row_weight, 2**depth) + ridge
        _learn_leaves(leaves[t], leaf_of[t], leaf_weights[t], left, row_weight, huber, rate)
    for _ in range(passes):
        for t in draw.permutation(trees):
            _learn_leaves(leaves[t], leaf_of[t], leaf_weights[t], left, row_weight, huber, pass_rate)
    _round_leaves(leaves, leaf_of, leaf_weights, row_weight)
    padded = np.stack([np.append(edges[at], np.full(HISTOGRAM_BINS - edges[at].size, np.inf)) for at in varied])
    return SymmetricTrees(varied[feature].astype(np.int16), padded[feature, cut].astype(np.float32), leaves)


def _compute_bin_edges(feature: Singles) -> Singles:
    """Thresholds between the values of a feature: all where there are few, else quantiles; none of a constant."""
    ordered = np.sort(feature)
    values = ordered[np.flatnonzero(np.diff(ordered, prepend=-np.inf))]
    if values.size <= HISTOGRAM_BINS:
        return np.asarray((values[1:] + values[:-1]) / 2, dtype=np.float32)
    places = np.linspace(0, feature.size - 1, HISTOGRAM_BINS + 1)[1:-1].round().astype(np.int64)
    return np.unique(ordered[places])


def _round_leaves(leaves: Singles, leaf_of: Bins, leaf_weights: Floats, weight: Singles) -> None:
    """Round leaves to whole steps of their tree; each tree makes up for what the rounding of those before it added."""
    added = np.zeros(leaf_of.shape[1], dtype=np.float32)
    for t, (values, step) in enumerate(zip(leaves, compute_leaf_steps(leaves), strict=True)):
        wanted = values - np.bincount(leaf_of[t], added * weight, values.size) / leaf_weights[t]
        rounded = np.clip(np.rint(wanted / step), -MAX_LEAF_STEPS, MAX_LEAF_STEPS) * step
        added += (rounded - values).astype(np.float32)[leaf_of[t]]
        leaves[t] = rounded


@_compile  # type: ignore[untyped-decorator, unused-ignore]
def _grow_tree(bins: Bins, gradient: Singles, weight: Singles, depth: int, ridge: float) -> tuple[Ints, Ints]:
    """Return feature and bin of the split of each level: those with the largest gain when all leaves use it.

    Rows are kept in the order of their leaves, so that the histogram of a leaf stays in the CPU's cache. Of two halves
    of a leaf the smaller is summed; the other is the rest.

    Args:
        bins: Bin of each feature, (rows, features).
        gradient: (rows,).
        weight: (rows,).
        depth: Levels.
        ridge: See ``boost``.
    """
    rows, count = bins.shape
    order, spare = np.arange(rows), np.empty(rows, dtype=np.int64)
    first = np.zeros(2**depth + 1, dtype=np.int64)
    first[1] = rows
    sums = np.zeros((2**depth, count, HISTOGRAM_BINS + 1, 2), dtype=np.float32)
    _add_histogram(bins, gradient, weight, order, sums[0])
    feature, cut = np.zeros(depth, dtype=np.int64), np.zeros(depth, dtype=np.int64)
    for level in range(depth):
        feature[level], cut[level] = _find_split(sums[: 2**level], ridge)
        if level + 1 == depth:
            break
        # A leaf becomes two neighbours; from the last on, none overwrites another.
        for leaf in range(2**level - 1, -1, -1):
            start, stop = first[leaf], first[leaf + 1]
            middle = _partition(bins[:, feature[level]], cut[level], order[start:stop], spare) + start
            first[2 * leaf + 2], first[2 * leaf + 1], first[2 * leaf] = stop, middle, start
            low_is_less = middle - start < stop - middle
            some = order[start:middle] if low_is_less else order[middle:stop]
            less = np.zeros_like(sums[0])
            _add_histogram(bins, gradient, weight, some, less)
            _split_sums(sums, leaf, less, low_is_less)
    return feature, cut


@_compile  # type: ignore[untyped-decorator, unused-ignore]
def _split_sums(sums: Singles, leaf: int, less: Singles, low_is_less: bool) -> None:
    """Write the sums of the two halves of a leaf, given those of its smaller half."""
    _, features, bins, _ = sums.shape
    low, high = sums[2 * leaf], sums[2 * leaf + 1]
    for feature in range(features):
        for at in range(bins):
            for which in range(2):
                whole, own = sums[leaf, feature, at, which], less[feature, at, which]
                low[feature, at, which] = own if low_is_less else whole - own
                high[feature, at, which] = whole - own if low_is_less else own


@_compile  # type: ignore[untyped-decorator, unused-ignore]
def _add_histogram(bins: Bins, gradient: Singles, weight: Singles, rows: Ints, sums: Singles) -> None:
    """Add gradients and weights of some rows by (feature, bin)."""
    for row in rows:
        g, w = gradient[row], weight[row]
        for feature in range(bins.shape[1]):
            at = bins[row, feature]
            sums[feature, at, 0] += g
            sums[feature, at, 1] += w


@_compile  # type: ignore[untyped-decorator, unused-ignore]
def _find_split(sums: Singles, ridge: float) -> tuple[int, int]:
    """Return the (feature, bin) with the largest gain over all leaves, from (leaves, features, bins, 2)."""
    leaves, count, _, _ = sums.shape
    gain = np.zeros((count, HISTOGRAM_BINS))
    for leaf in range(leaves):
        total_g, total_w = sums[leaf, 0, :, 0].sum(), sums[leaf, 0, :, 1].sum()
        if total_w <= 0:
            continue
        for feature in range(count):
            g, w = np.float32(0.0), np.float32(0.0)
            for at in range(HISTOGRAM_BINS):
                g += sums[leaf, feature, at, 0]
                w += sums[leaf, feature, at, 1]
                other_g, other_w = total_g - g, max(total_w - w, np.float32(0.0))
                gain[feature, at] += g * g / (w + ridge) + other_g * other_g / (other_w + ridge)
    best = int(gain.argmax())
    return best // HISTOGRAM_BINS, best % HISTOGRAM_BINS


@_compile  # type: ignore[untyped-decorator, unused-ignore]
def _partition(bins: Bins, cut: int, rows: Ints, spare: Ints) -> int:
    """Sort rows into those up to a bin and those beyond, in their order; return the number of the former."""
    kept = moved = 0
    for row in rows:
        if bins[row] > cut:
            spare[moved] = row
            moved += 1
        else:
            rows[kept] = row
            kept += 1
    for at in range(moved):
        rows[kept + at] = spare[at]
    return kept


@_compile  # type: ignore[untyped-decorator, unused-ignore]
def _assign_leaves(bins: Bins, feature: Ints, cut: Ints, leaf_of: Bins) -> None:
    """Write the leaf of each row: its answers as bits, that of the first level the lowest."""
    for level in range(feature.size):
        own, least = bins[feature[level]], np.uint8(cut[level])
        for row in range(leaf_of.size):
            leaf_of[row] |= np.uint8(own[row] > least) << np.uint8(level)


@_compile  # type: ignore[untyped-decorator, unused-ignore]
def _learn_leaves(
    leaves: Singles, leaf_of: Bins, leaf_weights: Floats, left: Singles, weight: Singles, huber: float, rate: float
) -> None:
    """Move the leaves of a tree towards what is left of the target, and take that off what is left.

    Args:
        leaves: (leaves,), changed.
        leaf_of: Leaf of each row.
        leaf_weights: Weight of each leaf, with the ridge.
        left: Target less the sum of all trees, (rows,), changed.
        weight: (rows,).
        huber: See ``boost``.
        rate: Learning rate.
    """
    total, most = np.zeros(leaves.size), np.float32(huber)
    for row in range(left.size):
        total[leaf_of[row]] += min(max(left[row], -most), most) * weight[row]
    step = (rate * total / leaf_weights).astype(np.float32)
    for leaf in range(leaves.size):
        leaves[leaf] += step[leaf]
    for row in range(left.size):
        left[row] -= step[leaf_of[row]]
