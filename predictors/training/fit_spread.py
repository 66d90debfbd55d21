"""Fit the expected errors of unmeasured GPUs and their dependence on shape: the prior of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize  # type: ignore[import-untyped, unused-ignore]

from predictors.arrays import Floats
from predictors.calibrate import LawObservations, list_adjustable_constants
from predictors.gaussian_process import (
    ErrorSpread,
    build_default_spread,
    compute_distances,
    compute_matern_correlation,
    list_axes,
)

MAX_LOG_ERROR = 1.5
"""A kernel missed by more, as a logarithm, counts as missed by this."""
PRIOR_STRENGTH = 0.002
"""Of each logarithm towards its usual value, in likelihood per kernel."""
VALUE_BOUNDS = {"length": (0.2, 30.0), "amplitude": (0.02, 1.0), "noise": (0.02, 0.5), "offset": (0.02, 2.0)}
MAX_STEPS, MAX_WARM_START_STEPS = 40, 15


@dataclass(frozen=True)
class ErrorBlock:
    """Kernels of one library, engine and release on a GPU left out.

    Attributes:
        coordinates: From ``gaussian_process.compute_coordinates``, (axes, kernels), without the stack axes: a block has
            one stack.
        log_errors: log(measured / predicted), (kernels,).
        jacobian: Derivatives of log(predicted time) by each offset, (kernels, offsets).
    """

    coordinates: Floats
    log_errors: Floats
    jacobian: Floats

    @staticmethod
    def from_observations(law: str, observed: LawObservations, offsets: int | None = None) -> ErrorBlock:
        """Kernels of a law as they were observed.

        Args:
            law: Name of the law.
            observed: Its kernels.
            offsets: Number of the offsets; by default those of the constants and the trust.
        """
        count = len(list_adjustable_constants(law)) + 1 if offsets is None else offsets
        missed = np.clip(observed.log_errors, -MAX_LOG_ERROR, MAX_LOG_ERROR)
        return ErrorBlock(
            observed.coordinates[: len(list_axes(law))],
            missed,
            observed.compute_jacobian(np.zeros(count)),
        )


def fit_spread(law: str, blocks: Sequence[ErrorBlock], near: ErrorSpread | None = None) -> ErrorSpread:
    """The spread under which the blocks are most probable.

    Args:
        law: Name of the law.
        blocks: Errors on left-out GPUs, one block per release and GPU. Blocks are independent of each other.
        near: Spread of almost the same blocks to start from.
    """
    usual = _pack_spread(law, build_default_spread(law, list_adjustable_constants(law)))
    start = usual if near is None else _pack_spread(law, near)
    bounds = np.log(np.array(_list_bounds(law)))
    kernels = sum(block.log_errors.size for block in blocks)

    def objective(vector: Floats) -> tuple[float, Floats]:
        value, gradient = PRIOR_STRENGTH * float(np.sum((vector - usual) ** 2)), 2 * PRIOR_STRENGTH * (vector - usual)
        for block in blocks:
            surprise, slope = _compute_neg_log_likelihood(block, np.exp(vector))
            value, gradient = value + surprise / kernels, gradient + slope / kernels
        return value, gradient

    steps = MAX_STEPS if near is None else MAX_WARM_START_STEPS
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps, "ftol": 1e-5}
    )
    return _build_spread(law, np.exp(found.x))


def _compute_neg_log_likelihood(block: ErrorBlock, values: Floats) -> tuple[float, Floats]:
    """-log likelihood of a block, and its derivatives by the logarithms of the values."""
    length, amplitude, noise, sd = _unpack_values(block.coordinates.shape[0], values)
    scaled = block.coordinates / length[:, None]
    r = compute_distances(scaled, scaled)
    alike = amplitude**2 * compute_matern_correlation(r)
    covariance = alike + (block.jacobian * sd**2) @ block.jacobian.T + noise**2 * np.eye(r.shape[0])
    inverse = np.linalg.inv(covariance)
    pull = inverse @ block.log_errors
    value = 0.5 * (block.log_errors @ pull + np.linalg.slogdet(covariance)[1])
    by_covariance = 0.5 * (inverse - np.outer(pull, pull))
    # d(alike) / d(log length) of an axis: 3 amplitude^2 exp(-sqrt(3) r) (difference / length)^2.
    near = by_covariance * 3 * amplitude**2 * np.exp(-np.sqrt(3) * r)
    by_length = 2 * (near.sum(axis=0) @ (scaled**2).T - np.einsum("ai,ij,aj->a", scaled, near, scaled, optimize=True))
    by_sd = 2 * sd**2 * np.einsum("ik,ij,jk->k", block.jacobian, by_covariance, block.jacobian, optimize=True)
    by_amplitude = 2 * np.sum(by_covariance * alike)
    by_noise = 2 * noise**2 * np.trace(by_covariance)
    return float(value), np.concatenate([by_length, [by_amplitude, by_noise], by_sd])


def _unpack_values(count: int, values: Floats) -> tuple[Floats, float, float, Floats]:
    return values[:count], float(values[count]), float(values[count + 1]), values[count + 2 :]


def _pack_spread(law: str, spread: ErrorSpread) -> Floats:
    length = [spread.length[name] for name in list_axes(law)]
    offset = [spread.offset[name] for name in list_adjustable_constants(law)]
    return np.asarray(np.log([*length, spread.amplitude, spread.noise, *offset, spread.trust]))


def _build_spread(law: str, values: Floats) -> ErrorSpread:
    length, amplitude, noise, sd = _unpack_values(len(list_axes(law)), values)
    offset = dict(zip(list_adjustable_constants(law), sd.tolist(), strict=False))
    return ErrorSpread(dict(zip(list_axes(law), length.tolist(), strict=True)), amplitude, noise, offset, float(sd[-1]))


def _list_bounds(law: str) -> list[tuple[float, float]]:
    offsets = len(list_adjustable_constants(law)) + 1
    return (
        [VALUE_BOUNDS["length"]] * len(list_axes(law))
        + [VALUE_BOUNDS["amplitude"], VALUE_BOUNDS["noise"]]
        + [VALUE_BOUNDS["offset"]] * offsets
    )
