"""How far GPUs left out of a fit are off, and how that goes with shape: what a calibration starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize  # type: ignore[import-untyped, unused-ignore]

from predictors.arrays import Floats
from predictors.calibrate import Observed, constants_of
from predictors.surface import Spread, axes, distance, matern, usual_spread

MOST_MISSED = 1.5
"""A kernel missed by more, as a logarithm, counts as missed by this."""
PULL = 0.002
"""Of each logarithm towards its usual value, in likelihood per kernel."""
BOUNDS = {"length": (0.2, 30.0), "amplitude": (0.02, 1.0), "noise": (0.02, 0.5), "offset": (0.02, 2.0)}
STEPS, STEPS_NEAR = 40, 15


@dataclass(frozen=True)
class Block:
    """Kernels of one framework on a GPU left out.

    Attributes:
        places: from `surface.coordinates`, without the software, which a block has one of, (axes, kernels).
        missed: (kernels,), logarithms of measured over predicted time.
        slopes: (kernels, offsets), what each offset changes in the logarithm of the predicted time.
    """

    places: Floats
    missed: Floats
    slopes: Floats

    @staticmethod
    def of(law: str, observed: Observed) -> Block:
        """Kernels of a law as they were observed."""
        missed = np.clip(observed.missed, -MOST_MISSED, MOST_MISSED)
        return Block(observed.places[: len(axes(law))], missed, observed.slopes(np.zeros(len(constants_of(law)) + 1)))


def fit_spread(law: str, blocks: Sequence[Block], near: Spread | None = None) -> Spread:
    """The spread under which the blocks are most probable.

    Args:
        law: its name.
        blocks: kernels of GPUs left out, as they were missed; of one framework on one GPU together, of others apart.
        near: the spread of almost the same blocks, to start from.
    """
    usual = _vector(law, usual_spread(law, constants_of(law)))
    start = usual if near is None else _vector(law, near)
    bounds = np.log(np.array(_bounds(law)))
    kernels = sum(block.missed.size for block in blocks)

    def objective(vector: Floats) -> tuple[float, Floats]:
        value, gradient = PULL * float(np.sum((vector - usual) ** 2)), 2 * PULL * (vector - usual)
        for block in blocks:
            surprise, slope = _surprise(block, np.exp(vector))
            value, gradient = value + surprise / kernels, gradient + slope / kernels
        return value, gradient

    steps = STEPS if near is None else STEPS_NEAR
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps, "ftol": 1e-5}
    )
    return _spread(law, np.exp(found.x))


def _surprise(block: Block, values: Floats) -> tuple[float, Floats]:
    """-log likelihood of a block, and its derivatives by the logarithms of the values."""
    length, amplitude, noise, sd = _parts(block.places.shape[0], values)
    scaled = block.places / length[:, None]
    r = distance(scaled, scaled)
    alike = amplitude**2 * matern(r)
    covariance = alike + (block.slopes * sd**2) @ block.slopes.T + noise**2 * np.eye(r.shape[0])
    inverse = np.linalg.inv(covariance)
    pull = inverse @ block.missed
    value = 0.5 * (block.missed @ pull + np.linalg.slogdet(covariance)[1])
    by_covariance = 0.5 * (inverse - np.outer(pull, pull))
    # d(alike) / d(log length) of an axis: 3 amplitude^2 exp(-sqrt(3) r) (difference / length)^2.
    near = by_covariance * 3 * amplitude**2 * np.exp(-np.sqrt(3) * r)
    by_length = 2 * (near.sum(axis=0) @ (scaled**2).T - np.einsum("ai,ij,aj->a", scaled, near, scaled, optimize=True))
    by_sd = 2 * sd**2 * np.einsum("ik,ij,jk->k", block.slopes, by_covariance, block.slopes, optimize=True)
    by_amplitude = 2 * np.sum(by_covariance * alike)
    by_noise = 2 * noise**2 * np.trace(by_covariance)
    return float(value), np.concatenate([by_length, [by_amplitude, by_noise], by_sd])


def _parts(count: int, values: Floats) -> tuple[Floats, float, float, Floats]:
    return values[:count], float(values[count]), float(values[count + 1]), values[count + 2 :]


def _vector(law: str, spread: Spread) -> Floats:
    length = [spread.length[name] for name in axes(law)]
    offset = [spread.offset[name] for name in constants_of(law)]
    return np.asarray(np.log([*length, spread.amplitude, spread.noise, *offset, spread.trust]))


def _spread(law: str, values: Floats) -> Spread:
    length, amplitude, noise, sd = _parts(len(axes(law)), values)
    offset = dict(zip(constants_of(law), sd.tolist(), strict=False))
    return Spread(dict(zip(axes(law), length.tolist(), strict=True)), amplitude, noise, offset, float(sd[-1]))


def _bounds(law: str) -> list[tuple[float, float]]:
    offsets = len(constants_of(law)) + 1
    return [BOUNDS["length"]] * len(axes(law)) + [BOUNDS["amplitude"], BOUNDS["noise"]] + [BOUNDS["offset"]] * offsets
