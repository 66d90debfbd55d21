"""Kernel latencies on a GPU: the model alone, or a measurement on another GPU carried over by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from predictors.calibrate import calibrate
from predictors.columns import prepare
from predictors.fitted import Weights, load_weights
from predictors.gpu import Gpu, resolve_gpu
from predictors.intervals import KEPT, SCALED, half_width
from predictors.law import Array
from predictors.machine import Machine, machine
from predictors.model import Modelled, model
from predictors.scaling import scaled
from predictors.transfer import in_order, like_siblings, ordered, residual

SHORTEST_US = 0.5
"""What a time of 0 is taken for: old traces count whole microseconds."""
KEPT_FAMILIES = ("collective",)
LINK_COPIES = ("HtoD", "DtoH", "PtoP")


def predict(
    kernels: pl.DataFrame,
    gpu: str | Gpu,
    *,
    source_gpu: str | Gpu | None = None,
    weights: str | Path | None = None,
    calibrations: Mapping[Gpu, pl.DataFrame] | None = None,
) -> pl.DataFrame:
    """Predicts the latency of each kernel on a GPU.

    Args:
        kernels: one kernel a row: `family`, `dtype` and that family's columns; optionally `measured_us`, the
            latency on `source_gpu` (see `predictors.kernels`).
        gpu: the target, a `Gpu` or any known spelling of its name.
        source_gpu: where `measured_us` was measured; without it the measurements are not used.
        weights: a folder with fitted weights; default: those that ship.
        calibrations: GPU -> kernel table with `measured_us` on that GPU (see `predictors.calibrate`).

    Returns:
        One row per kernel, in order: `time_us`, `low_us`, `high_us` (a 90 % interval), `bound_us` (nothing can be
        faster; null without a shape), `utilization` (bound / time; over 1 only where a measured time lies under
        the bound, which means a wrong work count), `limiter` ('compute', 'memory', 'latency', 'link', 'unknown'),
        `method` ('measured', 'law', 'transfer', 'scaled', 'kept', 'unknown') and `runs_as`, the dtype really used
        where it differs from the row's.

    Raises:
        UnknownGpuError: no such GPU, or several.
        KernelTableError: a family or dtype nobody knows, a column of a wrong type, or a calibration without any
            kernel that has both a shape and a measurement.
        WeightsError: no readable weights.
    """
    target = machine(_gpu(gpu))
    source = machine(_gpu(source_gpu)) if source_gpu is not None else None
    fitted = load_weights(weights)
    calibrations = calibrations or {}
    for measured_on, table in calibrations.items():
        fitted = calibrate(table, measured_on, fitted)
    alone = _alone(prepare(kernels, target), target, fitted, map(machine, calibrations))
    measured = alone.table["measured_us"].to_numpy() if source else np.full(alone.table.height, np.nan)
    if source is not None and source.slug == target.slug:
        time, width, method = _measured(alone, measured, target, fitted)
    elif source is not None:
        time, width, method = _carried(kernels, alone, measured, source, target, fitted)
    else:
        time, method = alone.time_us, np.where(np.isnan(alone.time_us), "unknown", "law")
        width = _widths(alone.table, target, fitted)
    return _result(alone, time, width, method)


def _gpu(gpu: str | Gpu) -> Gpu:
    return gpu if isinstance(gpu, Gpu) else resolve_gpu(gpu).gpu


def _alone(table: pl.DataFrame, gpu: Machine, weights: Weights, calibrated: Iterable[Machine]) -> Modelled:
    """The model, and where other GPUs were calibrated, in order with what that says of them."""
    alone = model(table, gpu, weights)
    own = {law for law, slug in weights.calibrated if slug == gpu.slug}
    for other in calibrated:
        if other.slug == gpu.slug or not ordered(gpu, other):
            continue
        measured = {law for law, slug in weights.calibrated if slug == other.slug} - own
        there = model(table, other, weights).time_us
        there = np.where(table["law"].is_in(measured).to_numpy(), there, np.nan)
        time_us = in_order(alone.time_us, there, table["dtype"], other, gpu)
        alone = replace(alone, time_us=np.maximum(time_us, alone.table["bound_us"].to_numpy()))
    return alone


def _measured(alone: Modelled, measured: Array, gpu: Machine, weights: Weights) -> tuple[Array, Array, Array]:
    """On the GPU of the measurement: the measurement."""
    known = ~np.isnan(measured)
    time = np.where(known, measured, alone.time_us)
    method = np.where(known, "measured", np.where(np.isnan(time), "unknown", "law"))
    return time, np.where(known, 0.0, _widths(alone.table, gpu, weights)), method


def _carried(
    kernels: pl.DataFrame, alone: Modelled, measured: Array, source: Machine, target: Machine, weights: Weights
) -> tuple[Array, Array, Array]:
    """From another GPU: by the model where it knows the shape, by a resource's ratio elsewhere."""
    # The trace itself tells how its GPU runs; a calibration of it matters where the target has one to compare with.
    both = any(slug == target.slug for _, slug in weights.calibrated)
    there = model(prepare(kernels, source), source, weights if both else replace(weights, calibrated={}))
    measured = np.maximum(measured, SHORTEST_US)
    log_ratio = np.log(measured / there.time_us)
    carried = alone.time_us * np.exp(residual(alone.table, log_ratio, source, target, weights))
    carried = np.maximum(carried, alone.table["bound_us"].to_numpy())
    by_ratio, bracket = scaled(alone.table, measured, source, target)
    modelled, known = ~np.isnan(alone.time_us), ~np.isnan(measured)
    kept = alone.table["family"].is_in(KEPT_FAMILIES).to_numpy()
    choices = {
        "transfer": modelled & known,
        "law": modelled & ~known,
        "kept": known & kept,
        "scaled": known,
    }
    method = np.select(list(choices.values()), list(choices), "unknown")
    time = np.select([method == "kept", method == "scaled"], [measured, by_ratio], carried)
    time = in_order(time, measured, alone.table["dtype"], source, target)
    time = like_siblings(time, measured, alone.table, source, target)
    width = np.select([method == "kept", method == "scaled"], [KEPT, SCALED + bracket], 0.0)
    return time, np.where(modelled, _widths(alone.table, target, weights), width), method


def _widths(table: pl.DataFrame, gpu: Machine, weights: Weights) -> Array:
    laws = table["law"].unique().drop_nulls().to_list()
    named, nameless = (
        table["law"].replace_strict(
            {law: half_width(law, gpu, weights, known) for law in laws}, default=0.0, return_dtype=pl.Float64
        )
        for known in (True, False)
    )
    return np.where(table["framework"].is_not_null().to_numpy(), named.to_numpy(), nameless.to_numpy())


def _result(alone: Modelled, time: Array, width: Array, method: Array) -> pl.DataFrame:
    bound = alone.table["bound_us"].to_numpy()
    least = np.where(np.isnan(bound), 0.0, np.fmin(bound, time))
    low = np.where(method == "measured", time, np.maximum(time * np.exp(-width), least))
    columns = {
        "time_us": time,
        "low_us": low,
        "high_us": time * np.exp(width),
        "bound_us": bound,
        "utilization": np.divide(bound, time, out=np.full(time.size, np.nan), where=time > 0),
    }
    same = pl.col("dtype") == pl.col("asked")
    runs_as = alone.table.select(runs_as=pl.when(~same).then("dtype"))["runs_as"]
    link = (pl.col("family") == "collective") | (
        pl.col("copy_kind").is_in(LINK_COPIES) & (pl.col("limiter") != "latency")
    ).fill_null(False)
    limited = alone.table.select("family", "copy_kind", limiter=alone.limiter())
    limiter = limited.select(pl.when(link).then(pl.lit("link")).otherwise("limiter"))[:, 0]
    return pl.DataFrame(
        [pl.Series(name, values, dtype=pl.Float64, nan_to_null=True) for name, values in columns.items()]
        + [limiter.alias("limiter"), pl.Series("method", method, dtype=pl.String), runs_as]
    )
