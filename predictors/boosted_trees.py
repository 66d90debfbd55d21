"""Evaluate the learned correction of a law in numpy: boosted symmetric trees, for some laws averaged with MLPs."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from predictors.arrays import Floats, Ints, Singles
from predictors.mlp import MlpEnsemble

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


@dataclass(frozen=True)
class TreesAndMlp:
    """Trees and a network that learned the same; both err, mostly on other kernels, and their mean errs less.

    Attributes:
        trees: Follow jumps in the behaviour of libraries from one size to the next.
        mlp: Interpolates smoothly between measured sizes.
    """

    trees: SymmetricTrees
    mlp: MlpEnsemble

    def predict(self, features: Singles) -> Floats:
        """The mean of both, as `Trees.predict`."""
        return (self.trees.predict(features) + self.mlp.predict(features)) / 2


Correction = SymmetricTrees | TreesAndMlp


def to_arrays(name: str, correction: Correction) -> dict[str, npt.NDArray[Any]]:
    """A correction as arrays to store; its leaves in half the size, off by 0.05 % of what a leaf adds at most."""
    if isinstance(correction, TreesAndMlp):
        network = correction.mlp
        layers = {f"weight{i}": weight for i, weight in enumerate(network.weights)}
        layers |= {f"bias{i}": bias for i, bias in enumerate(network.biases)}
        stored = {"least": network.feature_min, "most": network.feature_max, **layers}
        return to_arrays(name, correction.trees) | {f"{name}/{part}": array for part, array in stored.items()}
    leaf = correction.leaf.astype(np.float16)
    return {f"{name}/feature": correction.feature, f"{name}/threshold": correction.threshold, f"{name}/leaf": leaf}


class CorrectionFile(Mapping[str, Correction]):
    """Corrections of a file, each unpacked when it is first asked for.

    Args:
        path: An .npz file with the arrays of ``to_arrays``.
    """

    def __init__(self, path: Path) -> None:
        self._arrays = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        self._unpacked: dict[str, Correction] = {}

    def __getitem__(self, name: str) -> Correction:
        if name not in self._unpacked:
            feature, threshold, leaf = (self._arrays[f"{name}/{part}"] for part in ("feature", "threshold", "leaf"))
            trees = SymmetricTrees(feature, threshold, leaf.astype(np.float32))
            self._unpacked[name] = (
                TreesAndMlp(trees, self._load_mlp(name)) if f"{name}/least" in self._arrays else trees
            )
        return self._unpacked[name]

    def _load_mlp(self, name: str) -> MlpEnsemble:
        layers = range(sum(array.startswith(f"{name}/weight") for array in self._arrays.files))
        weights, biases = (tuple(self._arrays[f"{name}/{part}{i}"] for i in layers) for part in ("weight", "bias"))
        return MlpEnsemble(self._arrays[f"{name}/least"], self._arrays[f"{name}/most"], weights, biases)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(array.removesuffix("/leaf") for array in self._arrays.files if array.endswith("/leaf")))

    def __len__(self) -> int:
        return sum(1 for _ in self)
