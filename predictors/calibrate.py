"""Calibrate the weights for a GPU with a few kernels measured on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.columns import build_law_inputs, prepare_kernels
from predictors.errors import KernelTableError
from predictors.gaussian_process import ErrorSpread, GaussianProcessCorrection, compute_coordinates
from predictors.gpu import Gpu
from predictors.hardware import Hardware, derive_hardware
from predictors.laws.law import LAWS
from predictors.model import evaluate_law
from predictors.weights_file import LawCalibration, Weights

OUTLIER_SDS = 3.0
"""Standard deviations from what the others say beyond which a measurement counts for less."""
DERIVATIVE_STEP = 1e-3
GAUSS_NEWTON_STEPS = 4

COMPUTE_BOUND_LAWS = ("gemm half", "gemm fp8", "conv half", "prefill", "encoder", "sequence")
"""Laws whose GPUs' offsets of the compute rate go together (study of modern GPUs, answer 8)."""
SHARED_OFFSET_FRACTION = 0.5
"""How much of the products' offset of the compute rate the other compute-bound laws take over."""


def calibrate(kernels: pl.DataFrame, gpu: Gpu, weights: Weights) -> Weights:
    """Return the weights, calibrated for one GPU with kernels measured on it.

    For each law, find the most probable offsets of the law's constants and of the trust in the learned correction,
    given the measurements and the errors of GPUs that were left out of the fit. Then fit a Gaussian process to the
    remaining errors. Its correction fades with the distance from the measured shapes.

    Args:
        kernels: Kernel table with ``measured_us``, the latency on this GPU in microseconds. Rows without it, or without
            a shape, are ignored.
        gpu: GPU that the kernels were measured on.
        weights: Weights to start from.

    Returns:
        The same weights with a calibration of this GPU for every law that has measurements.

    Raises:
        KernelTableError: No row has both a shape and a measurement.
    """
    target = derive_hardware(gpu)
    table = prepare_kernels(kernels, target)
    usable = table.filter(pl.col("law").is_not_null(), pl.col("measured_us") > 0)
    if usable.is_empty():
        raise KernelTableError("nothing to calibrate with: no kernel has both a shape and measured_us")
    own = {}
    for (law, on_mma), rows in usable.group_by("law", "on_mma", maintain_order=True):
        seen = target.on_mma if on_mma else target
        own[str(law), seen.slug] = _calibrate_law(str(law), rows, seen, weights)
    return replace(weights, calibrated=weights.calibrated | _transfer_gemm_offset(own, target) | own)


def _transfer_gemm_offset(
    own: dict[tuple[str, str], LawCalibration], gpu: Hardware
) -> dict[tuple[str, str], LawCalibration]:
    """Of products on the tensor cores, part of the compute rate's offset holds for other compute-bound laws."""
    products = own.get(("gemm half", gpu.slug))
    if products is None:
        return {}
    share = LawCalibration({"compute": SHARED_OFFSET_FRACTION * products.offset["compute"]})
    return {(law, seen.slug): share for law in COMPUTE_BOUND_LAWS for seen in (gpu, gpu.on_mma)}


@dataclass(frozen=True)
class LawObservations:
    """Kernels of a law measured on a GPU, against what is predicted for them there.

    Attributes:
        coordinates: From ``gaussian_process.compute_coordinates``, (axes, kernels).
        log_errors: log(measured / predicted), (kernels,).
        log_time_change: Maps one vector of offsets (of the law's constants, and last of the trust in the learned
            correction) to the change of log(predicted time), (kernels,).
    """

    coordinates: Floats
    log_errors: Floats
    log_time_change: Callable[[Floats], Floats]

    def compute_jacobian(self, offset: Floats) -> Floats:
        """Derivatives of `moved`, (kernels, offsets)."""
        at = self.log_time_change(offset)
        return np.stack(
            [
                (self.log_time_change(offset + step) - at) / DERIVATIVE_STEP
                for step in DERIVATIVE_STEP * np.eye(offset.size)
            ],
            axis=1,
        )


def list_adjustable_constants(law: str) -> tuple[str, ...]:
    """The constants of a law that measurements on one GPU may move."""
    return tuple(name for name in LAWS[law].priors if name != "floor" or "floor" in LAWS[law].effects)


def compare_with_predictions(law: str, rows: pl.DataFrame, gpu: Hardware, weights: Weights) -> LawObservations:
    """What rows of one law, with `measured_us`, say about a GPU beyond the weights."""
    of_rows = build_law_inputs(rows)
    columns = of_rows.to_columns(gpu)
    terms, time_us = evaluate_law(of_rows, law, gpu, replace(weights, calibrated={}))
    correction = np.log(time_us) - np.log(terms.time_us)
    names = list_adjustable_constants(law)

    def moved(offset: Floats) -> Floats:
        changed = weights.get_law(law).compute_constants(
            gpu, of_rows.frameworks, dict(zip(names, offset, strict=False))
        )
        there = LAWS[law].evaluate(columns, of_rows.share, gpu, changed)
        return np.asarray(np.log(there.time_us) - np.log(terms.time_us) + offset[-1] * correction)

    missed = np.log(rows["measured_us"].to_numpy()) - np.log(time_us)
    return LawObservations(compute_coordinates(law, of_rows.frameworks, columns, terms, gpu), missed, moved)


def _calibrate_law(law: str, rows: pl.DataFrame, gpu: Hardware, weights: Weights) -> LawCalibration:
    names = list_adjustable_constants(law)
    spread = weights.get_spread(law)
    observed = compare_with_predictions(law, rows, gpu, weights)
    offset, weight = fit_offsets(observed, spread, spread.get_offset_sds(names))
    moved = dict(zip(names, offset.tolist(), strict=False))
    return LawCalibration(moved, float(offset[-1]), GaussianProcessCorrection(spread, observed.coordinates, weight))


def fit_offsets(observed: LawObservations, spread: ErrorSpread, sd: Floats) -> tuple[Floats, Floats]:
    """Offsets that explain what was missed, and the weights of the surface over the rest: Gauss-Newton steps.

    A measurement that contradicts the others gets additional noise until it is no longer surprising.

    Args:
        observed: Errors of the measured kernels.
        spread: Expected errors of such a GPU.
        sd: Prior standard deviation of each offset.

    Returns:
        The offsets, and one weight per measured kernel.
    """
    offset, wild = np.zeros(sd.size), np.zeros(observed.log_errors.size)
    alike = spread.compute_covariance(observed.coordinates, observed.coordinates)
    for _ in range(GAUSS_NEWTON_STEPS):
        slopes = observed.compute_jacobian(offset)
        goal = observed.log_errors - observed.log_time_change(offset) + slopes @ offset
        rest = alike + np.diag(spread.noise**2 + wild)
        inverse = np.linalg.inv(rest + (slopes * sd**2) @ slopes.T)
        step = sd**2 * (slopes.T @ (inverse @ goal)) - offset
        offset = offset + np.clip(step, -0.5, 0.5)
        # Leave-one-out prediction of each measurement (Rasmussen and Williams, 5.10 to 5.12).
        alone, variance = inverse @ goal / np.diag(inverse), 1 / np.diag(inverse) - wild
        wild = np.maximum(np.square(alone / OUTLIER_SDS) - variance, 0.0)
    rest = alike + np.diag(spread.noise**2 + wild)
    return offset, np.asarray(np.linalg.solve(rest, observed.log_errors - observed.log_time_change(offset)))
