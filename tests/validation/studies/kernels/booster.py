"""The learners against scikit-learn's boosting and Gaussian processes, on what the laws leave of measured times.

All are shown the same features of the same kernels, with their library, engine and release. "GPU" trains on the other
GPUs, as the corrections that all GPUs share; "shapes" trains on four of five shapes of one GPU, as an architecture's
own. Errors are those of the correction alone, as a part of the time; the laws' constants are those that ship.
scikit-learn's boosting runs with its usual settings and as many trees; its Gaussian process, whose cost grows with the
cube of the rows, on scaled features of a part of them.
"""

import time
from collections.abc import Iterator
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import LeaveOneGroupOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from predictors.arrays import Ints
from predictors.corrections import BOARD_FEATURES
from predictors.training.fit import TEST_FOLDS, compute_row_targets, load_measurements, sample_rows
from predictors.weights_file import load_weights
from tests.validation.estimator import SymmetricTreesRegressor
from tests.validation.study import KERNEL_DATA, find_input, format_table

INPUTS = (KERNEL_DATA,)
LAWS = ("gemm half", "gemm fp8_block", "prefill", "decode", "encoder", "moe half")
GPUS = ("b200", "h100-sxm", "l40s")
ROWS = 400
"""Kernels of a GPU that are drawn, of each library, engine and release."""
GAUSSIAN_PROCESS_ROWS = 1500
OWN_BOOSTER, LIBRARY = "symmetric trees (ours)", "HistGradientBoostingRegressor"
GAUSSIAN_PROCESS = "GaussianProcessRegressor"


class SubsampledGaussianProcess(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """scikit-learn's Gaussian process with a Matern kernel, on scaled features of evenly drawn rows."""

    def fit(self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray) -> Self:  # noqa: N803
        """Fit it; the weights don't count."""
        del sample_weight
        rows = np.linspace(0, len(y) - 1, min(GAUSSIAN_PROCESS_ROWS, len(y))).astype(int)
        kernel = ConstantKernel(0.1) * Matern(3.0, nu=1.5) + WhiteKernel(0.01)
        self.process_ = make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True))
        self.process_.fit(X[rows], y[rows])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:  # noqa: N803
        """Return the mean."""
        return np.asarray(self.process_.predict(X))


REGRESSORS = {
    "GPU": {
        OWN_BOOSTER: SymmetricTreesRegressor(trees=120, depth=6, rate=0.12, huber=0.3, ridge=20.0),
        LIBRARY: HistGradientBoostingRegressor(max_iter=120),
        GAUSSIAN_PROCESS: SubsampledGaussianProcess(),
    },
    "shapes": {
        OWN_BOOSTER: SymmetricTreesRegressor(trees=450, depth=8, rate=0.3, huber=0.1, ridge=10.0),
        LIBRARY: HistGradientBoostingRegressor(max_iter=450),
        GAUSSIAN_PROCESS: SubsampledGaussianProcess(),
    },
}
"""What is left out -> regressors, with the settings that ship."""

Split = tuple[Ints, Ints]


def run() -> str:
    """Return the errors of each, and how long they take to predict."""
    measured = load_measurements([find_input(KERNEL_DATA) / "aiconfigurator"])
    constants = load_weights().laws
    rows = []
    for law in LAWS:
        parts = {part.gpu: sample_rows(part.table, ROWS) for part in measured[law] if part.gpu in GPUS}
        targets = [
            compute_row_targets(law, table, table, part.hardware, constants[law], {})
            for part in measured[law]
            if (table := parts.get(part.gpu)) is not None
        ]
        features = np.concatenate([one.features[:-BOARD_FEATURES] for one in targets], axis=1).T
        target, weight = (np.concatenate([getattr(one, key) for one in targets]) for key in ("target", "weight"))
        gpu = np.repeat(np.arange(len(parts)), [table.height for table in parts.values()])
        shape = np.concatenate([table["shape"].to_numpy() for table in parts.values()])
        splits = {
            "GPU": list(LeaveOneGroupOut().split(features, groups=gpu)),
            "shapes": list(split_by_shape(gpu, shape)),
        }
        for left_out, regressors in REGRESSORS.items():
            for name, regressor in regressors.items():
                scores = score(regressor, features, target, weight, splits[left_out])
                rows.append((law, left_out, name, *scores))
    head = ("law", "left out", "regressor", "error, median", "90th percentile", "thousand rows a CPU second")
    return "# The learners against scikit-learn's\n\n" + format_table(head, rows)


def split_by_shape(gpu: Ints, shape: Ints) -> Iterator[Split]:
    """Split each GPU's kernels by shape, as for the errors that ship."""
    is_test = shape % TEST_FOLDS == 0
    for own in np.unique(gpu):
        yield np.flatnonzero((gpu == own) & ~is_test), np.flatnonzero((gpu == own) & is_test)


def score(
    regressor: RegressorMixin, features: np.ndarray, target: np.ndarray, weight: np.ndarray, splits: list[Split]
) -> tuple[str, str, str]:
    """Return the errors on what was left out, and the pace of predicting."""
    missed, seconds = [], 0.0
    for train, test in splits:
        fitted = clone(regressor).fit(features[train], target[train], sample_weight=weight[train] / weight.mean())
        start = time.process_time()
        predicted = fitted.predict(features[test])
        seconds += time.process_time() - start
        missed.append(np.expm1(np.abs(target[test] - predicted)))
    error = np.concatenate(missed)
    pace = error.size / seconds / 1e3
    return f"{100 * np.median(error):.2f} %", f"{100 * np.quantile(error, 0.9):.1f} %", f"{pace:.0f}"
