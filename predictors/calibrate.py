"""A few kernels measured on a GPU -> what that GPU does otherwise, so that every later prediction for it is nearer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl

from predictors.columns import prepare, sizes
from predictors.errors import KernelTableError
from predictors.fitted import Calibrated, Weights
from predictors.gpu import Gpu
from predictors.law import LAWS, Array
from predictors.machine import Machine, machine
from predictors.model import evaluate, scale
from predictors.surface import coordinates, surface

OFFSET_SD = {"compute": 0.25, "memory": 0.15, "floor": 0.2}
"""How far a GPU may lie from its datasheet and its class, as a logarithm (study of modern GPUs, answer 7)."""
POINT_ERROR = 0.15
"""Error of one kernel that has nothing to do with the GPU, as a logarithm."""
EFFECTIVE_POINTS = 15.0
"""How many independent measurements many kernels count as: like shapes err together."""
MISFIT = np.log(2.0)
"""What misses by more says something about its work count, not about kernels of like shape."""
STEP = 1e-3
ITERATIONS = 8

COMPUTE_BOUND = ("gemm half", "gemm fp8", "conv half", "prefill", "encoder")
"""Laws whose GPUs' offsets of the compute rate go together (study of modern GPUs, answer 8)."""
TRAVELS = 0.5
"""How much of the products' offset of the compute rate the other compute-bound laws take over."""


def calibrate(kernels: pl.DataFrame, gpu: Gpu, weights: Weights) -> Weights:
    """Weights that know what a GPU does otherwise, from kernels measured on it.

    For each law it finds the most probable offsets of the compute rate, the memory rate and the floor, given the
    measurements and a prior around what the weights already say; then a surface over what is left, which fades with
    the distance from the measured shapes. The learned correction stays as it is.

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
    own = {
        (str(law), target.slug): _calibrated(str(law), rows, target, weights)
        for (law,), rows in usable.group_by("law", maintain_order=True)
    }
    return replace(weights, calibrated=weights.calibrated | _carried_over(own, target) | own)


def _carried_over(own: dict[tuple[str, str], Calibrated], gpu: Machine) -> dict[tuple[str, str], Calibrated]:
    """Of products on the tensor cores, part of the compute rate's offset holds for other compute-bound laws."""
    products = own.get(("gemm half", gpu.slug))
    if products is None:
        return {}
    share = Calibrated({"compute": TRAVELS * products.offset["compute"]})
    return {(law, gpu.slug): share for law in COMPUTE_BOUND}


def _calibrated(law: str, rows: pl.DataFrame, gpu: Machine, weights: Weights) -> Calibrated:
    plain = replace(weights, calibrated={})
    of_rows = sizes(rows)
    terms, time_us = evaluate(of_rows, law, gpu, plain)
    goal = np.log(rows["measured_us"].to_numpy()) - np.log(time_us) + np.log(terms.time_us)
    columns = of_rows.on(gpu)
    names = [name for name in LAWS[law].effects if name in OFFSET_SD]

    def log_law(offset: Array) -> Array:
        moved = dict(zip(names, offset.tolist(), strict=True))
        terms = LAWS[law].terms(columns, gpu, weights.law(law).constants(gpu, of_rows.frameworks, moved))
        return np.asarray(np.log(scale(terms, of_rows.share).time_us))

    offset = _most_probable(log_law, np.array([OFFSET_SD[name] for name in names]), goal)
    missed = np.clip(goal - log_law(offset), -MISFIT, MISFIT)
    return Calibrated(dict(zip(names, offset.tolist(), strict=True)), surface(coordinates(law, columns), missed))


def _most_probable(log_law: Callable[[Array], Array], sd: Array, goal: Array) -> Array:
    """Offsets that bring the law near its goal: Gauss-Newton steps with Huber's weights."""
    offset = np.zeros(sd.size)
    each = min(1.0, EFFECTIVE_POINTS / goal.size) / POINT_ERROR**2
    for _ in range(ITERATIONS):
        at = log_law(offset)
        slopes = np.stack([(log_law(offset + step) - at) / STEP for step in STEP * np.eye(sd.size)], axis=1)
        trust = 1 / np.maximum(1.0, np.abs(goal - at) / (2 * POINT_ERROR)) * each
        curvature = slopes.T @ (slopes * trust[:, None]) + np.diag(1 / sd**2)
        gradient = slopes.T @ ((goal - at) * trust) - offset / sd**2
        step = np.clip(np.linalg.solve(curvature, gradient), -0.5, 0.5)
        offset = offset + step
        if np.abs(step).max() < STEP:
            break
    return offset
