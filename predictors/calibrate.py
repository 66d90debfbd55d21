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
from predictors.kernels import INTEGER_COLUMNS, KERNEL_COLUMNS
from predictors.laws.law import LAWS
from predictors.model import compute_architecture_shifts, evaluate_kernels, evaluate_law, split_by_law
from predictors.weights_file import LawCalibration, Weights, load_weights

OUTLIER_SDS = 3.0
"""Standard deviations from what the others say beyond which a measurement counts for less."""
DERIVATIVE_STEP = 1e-3
GAUSS_NEWTON_STEPS = 4

COMPUTE_BOUND_LAWS = ("gemm half", "gemm fp8", "conv half", "prefill", "encoder", "sequence")
"""Laws whose GPUs' offsets of the compute rate go together (study of modern GPUs, answer 8)."""
ARCHITECTURE_SD = 0.2
"""Standard deviation of how much of an architecture's learned correction a GPU of another one has. Most probable were
0.19 to 0.23 by GPUs that were left out, in GEMMs and attention; 0.1 to 0.3 are as good within 0.2 points."""
SHARED_OFFSET_FRACTION = 0.5
"""How much of the products' offset of the compute rate the other compute-bound laws take over."""


def calibrate(kernels: pl.DataFrame, gpu: Gpu, weights: Weights) -> Weights:
    """Return the weights, calibrated for one GPU with kernels measured on it.

    For each law, find the most probable offsets of the law's constants and of the trust in the learned correction, and
    for a GPU without a sibling the architectures that it is like, given the measurements and the errors of GPUs that
    were left out of the fit. Then fit a Gaussian process to the
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
        log_time_change: Maps one vector of offsets (of the law's constants, of the trust in the learned correction, and
            of the architectures, which may be left out) to the change of log(predicted time), (kernels,).
        architectures: Those whose learned corrections the GPU may have a part of.
    """

    coordinates: Floats
    log_errors: Floats
    log_time_change: Callable[[Floats], Floats]
    architectures: tuple[str, ...] = ()

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
    shifts = compute_architecture_shifts(of_rows, law, gpu, weights)
    shift = np.stack([*shifts.values()], axis=1) if shifts else np.zeros((correction.size, 0))

    def moved(offset: Floats) -> Floats:
        trust, parts = offset[len(names)], offset[len(names) + 1 :]
        changed = weights.get_law(law).compute_constants(
            gpu, of_rows.frameworks, dict(zip(names, offset, strict=False))
        )
        there = LAWS[law].evaluate(columns, of_rows.share, gpu, changed)
        learned = trust * correction + shift[:, : parts.size] @ parts
        return np.asarray(np.log(there.time_us) - np.log(terms.time_us) + learned)

    missed = np.log(rows["measured_us"].to_numpy()) - np.log(time_us)
    places = compute_coordinates(law, of_rows.frameworks, columns, terms, gpu)
    return LawObservations(places, missed, moved, tuple(shifts))


def get_offset_sds(law: str, observed: LawObservations, spread: ErrorSpread) -> Floats:
    """Standard deviations of the offsets of a law's constants, of the trust, and of the architectures."""
    of_law = spread.get_offset_sds(list_adjustable_constants(law))
    return np.concatenate([of_law, np.full(len(observed.architectures), ARCHITECTURE_SD)])


def _calibrate_law(law: str, rows: pl.DataFrame, gpu: Hardware, weights: Weights) -> LawCalibration:
    names = list_adjustable_constants(law)
    spread = weights.get_spread(law)
    observed = compare_with_predictions(law, rows, gpu, weights)
    offset, weight = fit_offsets(observed, spread, get_offset_sds(law, observed, spread))
    moved = dict(zip(names, offset.tolist(), strict=False))
    trust, *parts = offset[len(names) :].tolist()
    like = dict(zip(observed.architectures, parts, strict=True))
    return LawCalibration(moved, trust, like, GaussianProcessCorrection(spread, observed.coordinates, weight))


def fit_offsets(observed: LawObservations, spread: ErrorSpread, sd: Floats) -> tuple[Floats, Floats]:
    """Offsets that explain what was missed, and the weights of the surface over the rest: Gauss-Newton steps.

    A measurement that contradicts the others gets additional noise until it is no longer surprising.

    ``sd`` is the prior standard deviation of each offset.

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


CROSS_VALIDATION_FOLDS = 5
MAX_KERNELS_PER_LAW = 200
"""Of one law; more add little and cost time in every prediction."""
MAX_ERROR_INCREASE_POINTS = 1.0
"""Points of error by which measurements may make predictions worse before they are left out."""
HOST_BOUND_FAMILIES = ("memcpy",)
"""How fast these run is up to the host."""
_LAUNCH_COLUMNS = ("measured_us", "blocks", "threads_per_block", "registers_per_thread", "shared_memory_bytes",
"tile_m",
                "tile_n", "split_k")  # fmt: skip


def select_distinct_kernels(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """The measured kernels worth keeping: each distinct one once, with its median time.

    Args:
        kernels: Kernel table with ``measured_us``, one row per launch.
        gpu: GPU that they were measured on.

    Returns:
        Non-empty columns of the kernel table. Of each law, the ``MAX_KERNELS_PER_LAW`` kernels with the largest total
        time.

    Raises:
        KernelTableError: No row has both a shape and a measurement.
    """
    table = prepare_kernels(kernels, derive_hardware(gpu))
    usable = table.filter(
        pl.col("law").is_not_null(), pl.col("measured_us") > 0, ~pl.col("family").is_in(HOST_BOUND_FAMILIES)
    ).with_columns(dtype="asked")
    if usable.is_empty():
        raise KernelTableError("no kernel has both a shape and a measured time")
    integers = [name for name in INTEGER_COLUMNS if name not in _LAUNCH_COLUMNS]
    key = ["law", *(name for name in KERNEL_COLUMNS if name not in _LAUNCH_COLUMNS)]
    alike = usable.group_by(key, maintain_order=True).agg(
        pl.col("measured_us").median(), in_all=pl.col("measured_us").sum()
    )
    kept = alike.filter(pl.col("in_all").rank("ordinal", descending=True).over("law") <= MAX_KERNELS_PER_LAW)
    held = [name for name in kept.columns if name in KERNEL_COLUMNS and kept[name].null_count() < kept.height]
    return kept.select(held).with_columns(pl.col([name for name in integers if name in held]).cast(pl.Int64))


def cross_validate_calibration(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """How far off measured kernels are predicted without any of them, and each fifth of them with the others.

    Args:
        kernels: From ``select_distinct_kernels``.
        gpu: GPU that they were measured on.

    Returns:
        One row per law: ``law``, ``kernels``, ``before`` and ``after`` (medians of |error| in percent; ``after`` is
        null for fewer than five kernels), ``sharpens`` (the kernels do not make predictions worse). A single kernel
        never sharpens: calibrated with a transformer's patch embedding, other convolutions came out three times as
        slow.
    """
    weights = load_weights()
    rows = kernels.with_columns(fold=pl.int_range(pl.len()) % CROSS_VALIDATION_FOLDS)
    parts = [
        _compute_errors(part, gpu, weights, calibrate(rest, gpu, weights))
        for fold in range(CROSS_VALIDATION_FOLDS)
        if (part := rows.filter(pl.col("fold") == fold)).height and (rest := rows.filter(pl.col("fold") != fold)).height
    ]
    errors = pl.concat(parts or [_compute_errors(rows, gpu, weights, weights)])
    enough = pl.len() >= CROSS_VALIDATION_FOLDS
    return (
        errors.group_by("law")
        .agg(pl.len().alias("kernels"), pl.col("before").median(), pl.when(enough).then(pl.col("after").median()))
        .sort("law")
        .with_columns(
            sharpens=(pl.col("after") <= pl.col("before") + MAX_ERROR_INCREASE_POINTS).fill_null(pl.col("kernels") > 1)
        )
    )


def select_improving_kernels(kernels: pl.DataFrame, errors: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """Those of the measured kernels that don't make predictions worse.

    ``kernels`` are from ``select_distinct_kernels``, ``errors`` from ``cross_validate_calibration``.
    """
    laws = errors.filter("sharpens")["law"]
    return kernels.filter(prepare_kernels(kernels, derive_hardware(gpu))["law"].is_in(laws.implode()))


def _compute_errors(kernels: pl.DataFrame, gpu: Gpu, without: Weights, with_others: Weights) -> pl.DataFrame:
    table = prepare_kernels(kernels, derive_hardware(gpu))
    rows = split_by_law(table)
    times = {"before": without, "after": with_others}
    return table.select(
        "law",
        *(
            (
                (
                    pl.lit(pl.Series(evaluate_kernels(rows, derive_hardware(gpu), weights).time_us))
                    / pl.col("measured_us")
                    - 1
                ).abs()
                * 100
            ).alias(name)
            for name, weights in times.items()
        ),
    )
