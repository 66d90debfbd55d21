"""The learned correction as a scikit-learn regressor, to compare, cross-validate and tune it with its tools."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from predictors.arrays import Floats
from predictors.training.boost import boost


class SymmetricTreesRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Symmetric trees, fitted by :func:`~predictors.training.boost.boost`, whose arguments the parameters are.

    Attributes:
        correction_: The trained correction.
    """

    def __init__(
        self,
        *,
        trees: int = 120,
        depth: int = 6,
        rate: float = 0.12,
        huber: float = 0.3,
        ridge: float = 20.0,
        rows_per_tree: int = 12000,
        passes: int = 0,
        seed: int = 0,
    ) -> None:
        self.trees = trees
        self.depth = depth
        self.rate = rate
        self.huber = huber
        self.ridge = ridge
        self.rows_per_tree = rows_per_tree
        self.passes = passes
        self.seed = seed

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:  # noqa: N803
        """Train the correction.

        Args:
            X: Features, (rows, features).
            y: Target, (rows,): logarithms, as errors are compared with ``huber``.
            sample_weight: Weights, (rows,); all 1 by default.

        Raises:
            ValueError: All weights are 0, or they are not one per row.
        """
        features, target = validate_data(self, X, y, dtype=np.float32, y_numeric=True)
        weight = np.ones(target.size) if sample_weight is None else np.asarray(sample_weight, np.float64)
        if weight.shape != target.shape:
            raise ValueError(f"There must be one sample weight per row, {target.shape}, not {weight.shape}.")
        if not weight.any():
            raise ValueError("Sample weights must contain at least one non-zero number.")
        rows = np.ascontiguousarray(features.T), target.astype(np.float64), weight / weight.mean()
        self.correction_ = boost(*rows, **self.get_params())
        return self

    def predict(self, X: npt.ArrayLike) -> Floats:  # noqa: N803
        """Predict the target.

        Args:
            X: Features, (rows, features).
        """
        check_is_fitted(self)
        features = validate_data(self, X, dtype=np.float32, reset=False)
        return self.correction_.predict(np.ascontiguousarray(features.T))
