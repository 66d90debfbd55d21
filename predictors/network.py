"""Small neural networks over dimensionless features: smooth where trees jump."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats, Singles

CHUNK_ROWS = 1024
"""Of so many rows a layer's outputs stay in the CPU's second cache."""
BLOCK_ROWS = 64
"""BLAS gets so many rows at a time, always: what it makes of one then doesn't depend on the others, but for the last
digit, which on some processors depends on its place among them. And so few it works through in the thread that asks;
threads of its own would wait for each other."""


@dataclass(frozen=True)
class Network:
    """Perceptrons of one form, of which the mean counts.

    Attributes:
        least, most: float32 (features,), the range that they were trained on; beyond it they see its end.
        weights: of each layer, float32 (perceptrons, outputs, inputs).
        biases: of each layer, float32 (perceptrons, outputs, 1).
    """

    least: Singles
    most: Singles
    weights: tuple[Singles, ...]
    biases: tuple[Singles, ...]

    def predict(self, features: Singles) -> Floats:
        """What they add to the logarithm of the time.

        Args:
            features: float32 (features, rows).

        Returns:
            float64 (rows,).
        """
        chunks = [self._mean(features[:, first:][:, :CHUNK_ROWS]) for first in range(0, features.shape[1], CHUNK_ROWS)]
        return np.concatenate(chunks, dtype=np.float64)

    def _mean(self, features: Singles) -> Singles:
        count, rows = features.shape
        x = np.zeros((count, rows + -rows % BLOCK_ROWS), dtype=np.float32)
        np.clip(features, self.least[:, None], self.most[:, None], out=x[:, :rows])
        blocks = x.reshape(count, -1, BLOCK_ROWS).swapaxes(0, 1)
        *hidden, (weight, bias) = zip(self.weights, self.biases, strict=True)
        for matrix, offset in hidden:
            blocks = matrix[:, None] @ blocks
            blocks += offset[:, None]
            np.maximum(blocks, 0.0, out=blocks)
        out = weight[:, None] @ blocks + bias[:, None]
        return np.asarray(out.reshape(len(out), -1)[:, :rows].mean(axis=0))
