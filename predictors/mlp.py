"""Evaluate small neural networks on dimensionless features: smooth where trees jump."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats, Singles

CHUNK_ROWS = 1024
"""Rows for which the outputs of a layer fit the CPU's L2 cache."""
BLOCK_ROWS = 64
"""Rows that BLAS always gets at a time. A fixed number makes the result of one row independent of the others, but for
the last digit, which on some processors depends on the position of the row. So few rows also run in the calling thread;
BLAS threads would wait for each other."""


@dataclass(frozen=True)
class MlpEnsemble:
    """Perceptrons of one form, of which the mean counts.

    Attributes:
        feature_min, feature_max: float32 (features,), the range in the training data. Features are clipped to it.
        weights: float32 (perceptrons, outputs, inputs) of each layer.
        biases: float32 (perceptrons, outputs, 1) of each layer.
    """

    feature_min: Singles
    feature_max: Singles
    weights: tuple[Singles, ...]
    biases: tuple[Singles, ...]

    def predict(self, features: Singles) -> Floats:
        """Return the addition to the logarithm of the time.

        Args:
            features: float32 (features, rows).

        Returns:
            float64 (rows,).
        """
        chunks = [
            self._predict_chunk(features[:, first:][:, :CHUNK_ROWS])
            for first in range(0, features.shape[1], CHUNK_ROWS)
        ]
        return np.concatenate(chunks, dtype=np.float64)

    def _predict_chunk(self, features: Singles) -> Singles:
        count, rows = features.shape
        x = np.zeros((count, rows + -rows % BLOCK_ROWS), dtype=np.float32)
        np.clip(features, self.feature_min[:, None], self.feature_max[:, None], out=x[:, :rows])
        blocks = x.reshape(count, -1, BLOCK_ROWS).swapaxes(0, 1)
        *hidden, (weight, bias) = zip(self.weights, self.biases, strict=True)
        for matrix, offset in hidden:
            blocks = matrix[:, None] @ blocks
            blocks += offset[:, None]
            np.maximum(blocks, 0.0, out=blocks)
        out = weight[:, None] @ blocks + bias[:, None]
        return np.asarray(out.reshape(len(out), -1)[:, :rows].mean(axis=0))
