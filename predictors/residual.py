"""The learned correction of the law: boosted symmetric trees over dimensionless features, evaluated in numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FEW_ROWS = 1024
"""Up to which number of rows it is quicker to take many trees at once."""


@dataclass(frozen=True)
class Trees:
    """Symmetric trees: every node of a level asks the same question, so a leaf's number is a few comparisons.

    Attributes:
        feature: int16 (trees, depth), the column each level looks at.
        threshold: float32 (trees, depth); the level's bit is set where the feature is greater.
        leaf: float32 (trees, 2**depth), what each tree adds to the logarithm of the time.
    """

    feature: npt.NDArray[np.int16]
    threshold: npt.NDArray[np.float32]
    leaf: npt.NDArray[np.float32]

    def predict(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Sum of the trees.

        Args:
            features: float32 (features, rows), each row of it contiguous.

        Returns:
            float64 (rows,).
        """
        return (self._few if features.shape[1] <= FEW_ROWS else self._many)(features).astype(np.float64)

    def _many(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Tree by tree: all that a tree needs stays in the CPU's cache."""
        rows = features.shape[1]
        total, value = np.zeros(rows, dtype=np.float32), np.empty(rows, dtype=np.float32)
        bit, leaf = np.empty(rows, dtype=np.bool_), np.empty(rows, dtype=np.uint8)
        for columns, thresholds, values in zip(self.feature.tolist(), self.threshold, self.leaf, strict=True):
            leaf.fill(0)
            # Horner's scheme from the last level down: doubling is cheaper than shifting by the level.
            for level in range(len(columns) - 1, -1, -1):
                np.greater(features[columns[level]], thresholds[level], out=bit)
                np.add(leaf, leaf, out=leaf)
                np.bitwise_or(leaf, bit.view(np.uint8), out=leaf)
            np.take(values, leaf, out=value, mode="clip")
            np.add(total, value, out=total)
        return total

    def _few(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Many trees at once: numpy's time per call would be most of the time."""
        trees, leaves = self.leaf.shape
        total = np.zeros(features.shape[1], dtype=np.float32)
        step = max(FEW_ROWS * 64 // max(features.shape[1], 1), 1)
        for first in range(0, trees, step):
            some = slice(first, first + step)
            columns, thresholds, values = self.feature[some], self.threshold[some], self.leaf[some]
            leaf = np.zeros((len(values), features.shape[1]), dtype=np.uint8)
            for level in range(columns.shape[1] - 1, -1, -1):
                np.add(leaf, leaf, out=leaf)
                np.bitwise_or(leaf, features[columns[:, level]] > thresholds[:, level, None], out=leaf)
            starts = np.arange(len(values), dtype=np.int32)[:, None] * leaves
            total += values.ravel()[leaf + starts].sum(axis=0)
        return total
