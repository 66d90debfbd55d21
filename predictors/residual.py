"""The learned correction of the law: boosted symmetric trees over dimensionless features, evaluated in numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


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
        return total.astype(np.float64)
