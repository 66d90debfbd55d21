"""A few kernels measured on a GPU -> that GPU's own offsets, so that every later prediction for it is nearer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from predictors.columns import law_columns, prepare
from predictors.errors import KernelTableError
from predictors.fitted import Effects, Fitted, Weights
from predictors.gpu import Gpu
from predictors.law import LAWS, Array
from predictors.machine import Machine, machine
from predictors.model import evaluate

OFFSET_SD = {"compute": 0.25, "memory": 0.15, "floor": 0.2}
"""How far a GPU may lie from its datasheet and its class, as a logarithm (study of modern GPUs, answer 7)."""
POINT_ERROR = 0.15
"""Error of one kernel that has nothing to do with the GPU, as a logarithm."""
STEP = 1e-3
ITERATIONS = 8


def calibrate(kernels: pl.DataFrame, gpu: Gpu, weights: Weights) -> Weights:
    """Weights that know a GPU's own offsets from kernels measured on it.

    For each law it finds the most probable offsets of the compute rate, the memory rate and the floor, given the
    measurements and a prior around what the weights already say. The learned correction stays as it is, so the
    offsets are fitted on what it leaves over.

    Args:
        kernels: a kernel table with `measured_us`, the latency on this GPU in microseconds; rows without it, or
            without a shape, are not used.
        gpu: where they were measured.
        weights: to start from.

    Returns:
        The same weights, with `gpu` in the base of every law that had measurements.

    Raises:
        KernelTableError: no row has both a shape and a measurement.
    """
    target = machine(gpu)
    table = prepare(kernels, target)
    usable = table.filter(pl.col("law").is_not_null(), pl.col("measured_us") > 0)
    if usable.is_empty():
        raise KernelTableError("nothing to calibrate with: no kernel has both a shape and measured_us")
    laws = dict(weights.laws)
    for (law,), rows in usable.group_by("law", maintain_order=True):
        laws[str(law)] = _with_offsets(str(law), rows, target, weights)
    return replace(weights, laws=laws)


def _with_offsets(law: str, rows: pl.DataFrame, gpu: Machine, weights: Weights) -> Fitted:
    fitted = weights.law(law)
    names = [name for name in LAWS[law].effects if name in OFFSET_SD]
    prior = fitted.offset(gpu)
    correction = np.log(evaluate(rows, law, gpu, weights)[1]) - _log_law(law, rows, gpu, fitted)
    goal = np.log(rows["measured_us"].to_numpy()) - correction
    sd = np.array([OFFSET_SD[name] for name in names])
    start = np.array([prior.get(name, 0.0) for name in names])
    offset = start.copy()
    for _ in range(ITERATIONS):
        at = _log_law(law, rows, gpu, _own(fitted, gpu, names, offset))
        slopes = np.stack([_slope(law, rows, gpu, fitted, names, offset, i, at) for i in range(len(names))], axis=1)
        trust = 1 / np.maximum(1.0, np.abs(goal - at) / (2 * POINT_ERROR)) / POINT_ERROR**2
        curvature = slopes.T @ (slopes * trust[:, None]) + np.diag(1 / sd**2)
        gradient = slopes.T @ ((goal - at) * trust) + (start - offset) / sd**2
        offset = offset + np.clip(np.linalg.solve(curvature, gradient), -0.5, 0.5)
    return _own(fitted, gpu, names, offset)


def _slope(
    law: str, rows: pl.DataFrame, gpu: Machine, fitted: Fitted, names: list[str], offset: Array, i: int, at: Array
) -> Array:
    moved = offset.copy()
    moved[i] += STEP
    return (_log_law(law, rows, gpu, _own(fitted, gpu, names, moved)) - at) / STEP


def _own(fitted: Fitted, gpu: Machine, names: list[str], offset: Array) -> Fitted:
    own: Effects = {gpu.slug: dict(zip(names, map(float, offset), strict=True))}
    return replace(fitted, gpu=fitted.gpu | own)


def _log_law(law: str, rows: pl.DataFrame, gpu: Machine, fitted: Fitted) -> Array:
    constants = fitted.constants(gpu, rows["framework"].to_numpy().astype(object))
    return np.asarray(np.log(LAWS[law].terms(law_columns(rows, gpu), gpu, constants).time_us))
