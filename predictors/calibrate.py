"""A few kernels measured on a GPU -> what that GPU does otherwise, so that every later prediction for it is nearer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.columns import prepare, sizes
from predictors.errors import KernelTableError
from predictors.fitted import Calibrated, Weights
from predictors.gpu import Gpu
from predictors.law import LAWS
from predictors.machine import Machine, machine
from predictors.model import evaluate
from predictors.surface import Spread, Surface, coordinates

WILD = 3.0
"""Standard deviations from what the others say beyond which a measurement counts for less."""
STEP = 1e-3
ITERATIONS = 4

COMPUTE_BOUND = ("gemm half", "gemm fp8", "conv half", "prefill", "encoder", "sequence")
"""Laws whose GPUs' offsets of the compute rate go together (study of modern GPUs, answer 8)."""
TRAVELS = 0.5
"""How much of the products' offset of the compute rate the other compute-bound laws take over."""


def calibrate(kernels: pl.DataFrame, gpu: Gpu, weights: Weights) -> Weights:
    """Weights that know what a GPU does otherwise, from kernels measured on it.

    For each law it finds the most probable offsets of the law's constants and of the trust in the learned correction,
    given the measurements and how far GPUs left out of the fit were off; then a surface over what is left, which
    fades with the distance from the measured shapes.

    Args:
        kernels: a kernel table with `measured_us`, the latency on this GPU in microseconds; rows without it, or
            without a shape, are not used.
        gpu: where they were measured.
        weights: to start from.

    Returns:
        The same weights, with this GPU `calibrated` for every law that had measurements.

    Raises:
        KernelTableError: no row has both a shape and a measurement.
    """
    target = machine(gpu)
    table = prepare(kernels, target)
    usable = table.filter(pl.col("law").is_not_null(), pl.col("measured_us") > 0)
    if usable.is_empty():
        raise KernelTableError("nothing to calibrate with: no kernel has both a shape and measured_us")
    own = {}
    for (law, on_mma), rows in usable.group_by("law", "on_mma", maintain_order=True):
        seen = target.on_mma if on_mma else target
        own[str(law), seen.slug] = _calibrated(str(law), rows, seen, weights)
    return replace(weights, calibrated=weights.calibrated | _carried_over(own, target) | own)


def _carried_over(own: dict[tuple[str, str], Calibrated], gpu: Machine) -> dict[tuple[str, str], Calibrated]:
    """Of products on the tensor cores, part of the compute rate's offset holds for other compute-bound laws."""
    products = own.get(("gemm half", gpu.slug))
    if products is None:
        return {}
    share = Calibrated({"compute": TRAVELS * products.offset["compute"]})
    return {(law, seen.slug): share for law in COMPUTE_BOUND for seen in (gpu, gpu.on_mma)}


@dataclass(frozen=True)
class Observed:
    """Kernels of a law measured on a GPU, against what is predicted for them there.

    Attributes:
        places: from `surface.coordinates`, (axes, kernels).
        missed: (kernels,), logarithms of measured over predicted time.
        moved: what offsets of the law's constants and of the trust in the learned correction, in one vector, change
            in the logarithm of the predicted time, (kernels,).
    """

    places: Floats
    missed: Floats
    moved: Callable[[Floats], Floats]

    def slopes(self, offset: Floats) -> Floats:
        """Derivatives of `moved`, (kernels, offsets)."""
        at = self.moved(offset)
        return np.stack([(self.moved(offset + step) - at) / STEP for step in STEP * np.eye(offset.size)], axis=1)


def constants_of(law: str) -> tuple[str, ...]:
    """The constants of a law that measurements on one GPU may move."""
    return tuple(name for name in LAWS[law].priors if name != "floor" or "floor" in LAWS[law].effects)


def observe(law: str, rows: pl.DataFrame, gpu: Machine, weights: Weights) -> Observed:
    """What rows of one law, with `measured_us`, say about a GPU beyond the weights."""
    of_rows = sizes(rows)
    columns = of_rows.on(gpu)
    terms, time_us = evaluate(of_rows, law, gpu, replace(weights, calibrated={}))
    correction = np.log(time_us) - np.log(terms.time_us)
    names = constants_of(law)

    def moved(offset: Floats) -> Floats:
        changed = weights.law(law).constants(gpu, of_rows.frameworks, dict(zip(names, offset, strict=False)))
        there = LAWS[law].at(columns, of_rows.share, gpu, changed)
        return np.asarray(np.log(there.time_us) - np.log(terms.time_us) + offset[-1] * correction)

    missed = np.log(rows["measured_us"].to_numpy()) - np.log(time_us)
    return Observed(coordinates(law, of_rows.frameworks, columns, terms, gpu), missed, moved)


def _calibrated(law: str, rows: pl.DataFrame, gpu: Machine, weights: Weights) -> Calibrated:
    names = constants_of(law)
    spread = weights.spread(law)
    observed = observe(law, rows, gpu, weights)
    offset, weight = most_probable(observed, spread, spread.sd(names))
    moved = dict(zip(names, offset.tolist(), strict=False))
    return Calibrated(moved, float(offset[-1]), Surface(spread, observed.places, weight))


def most_probable(observed: Observed, spread: Spread, sd: Floats) -> tuple[Floats, Floats]:
    """Offsets that explain what was missed, and the weights of the surface over the rest: Gauss-Newton steps.

    A measurement that the others speak against gets as much noise of its own as makes it unsurprising.

    Args:
        observed: the measurements.
        spread: how far such a GPU may be off.
        sd: the same of each offset.
    """
    offset, wild = np.zeros(sd.size), np.zeros(observed.missed.size)
    alike = spread.alike(observed.places, observed.places)
    for _ in range(ITERATIONS):
        slopes = observed.slopes(offset)
        goal = observed.missed - observed.moved(offset) + slopes @ offset
        rest = alike + np.diag(spread.noise**2 + wild)
        inverse = np.linalg.inv(rest + (slopes * sd**2) @ slopes.T)
        step = sd**2 * (slopes.T @ (inverse @ goal)) - offset
        offset = offset + np.clip(step, -0.5, 0.5)
        # Each measurement as predicted from all others (Rasmussen and Williams, 5.10 to 5.12).
        alone, variance = inverse @ goal / np.diag(inverse), 1 / np.diag(inverse) - wild
        wild = np.maximum(np.square(alone / WILD) - variance, 0.0)
    rest = alike + np.diag(spread.noise**2 + wild)
    return offset, np.asarray(np.linalg.solve(rest, observed.missed - observed.moved(offset)))
