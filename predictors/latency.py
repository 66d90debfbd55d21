"""Kernel latencies on GPUs: the model alone, or a measurement on another GPU carried over by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats, Ints
from predictors.calibrate import calibrate
from predictors.equivalent import SPREAD, Equivalents
from predictors.fitted import Calibrated, Weights, load_weights
from predictors.gpu import Gpu
from predictors.gpu_names import resolve_gpu
from predictors.intervals import KEPT, SCALED
from predictors.kernels import complete
from predictors.machine import Machine, machine
from predictors.model import Modelled, Runs, Split, model
from predictors.precision import has_tf32
from predictors.result import KEEPS, LAW, MEASURED, SCALES, TRANSFER, UNKNOWN, result, widths
from predictors.scaling import scaled
from predictors.transfer import (
    Missed,
    as_far_as_boards,
    as_the_host_feeds,
    in_order,
    like_siblings,
    missed,
    ordered,
    residual,
)

SHORTEST_US = 0.5
"""What a time of 0 is taken for: old traces count whole microseconds."""
KEPT_FAMILIES = ("collective",)

Offsets = dict[tuple[str, str], Calibrated]


def predict(
    kernels: pl.DataFrame,
    gpu: str | Gpu,
    *,
    source_gpu: str | Gpu | None = None,
    weights: str | Path | None = None,
    calibrations: Mapping[Gpu, pl.DataFrame] | None = None,
) -> pl.DataFrame:
    """Predicts the latency of each kernel on a GPU; `Batch` does the same for several GPUs in less time.

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
    target = _gpu(gpu)
    return Batch(kernels, source_gpu=source_gpu, weights=weights).on(target, calibrations)


class Batch:
    """Kernels to be predicted on one GPU after the other.

    A trace repeats its kernels step by step and layer by layer: each distinct one is worked out once per GPU, and
    what the measurements say of the GPU they were taken on once in all.

    Args:
        kernels: as for `predict`.
        source_gpu: as for `predict`.
        weights: as for `predict`.

    Raises:
        UnknownGpuError: no such source GPU, or several.
        KernelTableError: a family or dtype nobody knows, or a column of a wrong type.
        WeightsError: no readable weights.
    """

    def __init__(
        self, kernels: pl.DataFrame, *, source_gpu: str | Gpu | None = None, weights: str | Path | None = None
    ) -> None:
        self._source = machine(_gpu(source_gpu)) if source_gpu is not None else None
        self._weights = load_weights(weights)
        table = complete(kernels)
        table = table.with_columns(tensor_core=pl.when(_had_matrix_units(self._source)).then("tensor_core"))
        self._measured = table["measured_us"].to_numpy()
        given = [name for name in kernels.columns if name in table.columns and name != "measured_us"]
        alike = table.select(given).hash_rows().to_frame("kernel").with_row_index("row")
        first = alike.select(pl.col("row").first().over("kernel"))["row"].to_numpy()
        distinct = first == np.arange(first.size)
        self._row = (np.cumsum(distinct) - 1)[first]
        self._runs = Runs(table.filter(distinct).drop("measured_us"))
        self._equivalents: dict[bytes, Equivalents] = {}
        self._offsets: dict[Gpu, Offsets] = {}
        self._missed: dict[bool, tuple[Missed, Floats]] = {}

    def on(self, gpu: str | Gpu, calibrations: Mapping[Gpu, pl.DataFrame] | None = None) -> pl.DataFrame:
        """The kernels on a GPU: what `predict` returns.

        Args:
            gpu: as for `predict`.
            calibrations: as for `predict`; those of one GPU the same in each call.

        Raises:
            UnknownGpuError: no such GPU, or several.
            KernelTableError: a calibration without any kernel that has both a shape and a measurement.
        """
        target, source = machine(_gpu(gpu)), self._source
        calibrated = {key: own for one in (calibrations or {}).items() for key, own in self._calibrated(*one).items()}
        weights = replace(self._weights, calibrated=calibrated)
        alone = _alone(self._runs.on(target), target, weights, map(machine, calibrations or {}))
        unknown = np.isnan(alone.time_us)[self._row]
        time, width = alone.time_us[self._row], widths(alone.table, target, weights)[self._row]
        method = np.where(unknown, UNKNOWN, LAW)
        if source is not None and source.slug == target.slug:
            known = ~np.isnan(self._measured)
            time, width = np.where(known, self._measured, time), np.where(known, 0.0, width)
            method = np.where(known, MEASURED, method)
        elif source is not None:
            time, width, method = self._carried(alone, width, method, source, target, weights)
        return result(alone, self._row, time, width, method)

    def _calibrated(self, gpu: Gpu, kernels: pl.DataFrame) -> Offsets:
        if gpu not in self._offsets:
            self._offsets[gpu] = calibrate(kernels, gpu, self._weights).calibrated
        return self._offsets[gpu]

    def _carried(
        self, alone: Modelled, width: Floats, method: Ints, source: Machine, target: Machine, weights: Weights
    ) -> tuple[Floats, Floats, Ints]:
        """From another GPU: by the model where it knows the shape, by a resource's ratio elsewhere."""
        row, table, measured = self._row, alone.table, np.maximum(self._measured, SHORTEST_US)
        (amiss, done), alone_us = self._missed_on(source, target, weights), alone.time_us[row]
        carried = np.exp(residual(amiss, table, row, source, target, weights))
        least_us = alone.bound_us[row] * done
        time = np.maximum(alone_us * carried, least_us)
        time = as_the_host_feeds(time, measured, amiss, alone_us, table, row)
        known = ~np.isnan(measured)
        kept = known & table["family"].is_in(KEPT_FAMILIES).to_numpy()[row]
        shapeless = known & ~kept & (method == UNKNOWN)
        method = np.where(kept, KEEPS, np.where(shapeless, SCALES, np.where(known, TRANSFER, method)))
        time, width = np.where(kept, measured, time), np.where(kept, KEPT, width)
        if shapeless.any():
            mine, times = row[shapeless], measured[shapeless]
            by_ratio, bracket = scaled(table, mine, times, source, target)
            alike = self._alike(shapeless, times, source)
            time[shapeless] = np.where(alike.told, alike.on(target, weights), by_ratio)
            width[shapeless] = np.where(alike.told, SPREAD, SCALED + bracket)
        time = in_order(time, measured, table["dtype"], self._runs.on(source).table["dtype"], row, source, target)
        time = like_siblings(time, measured, table, row, source, target)
        width = as_far_as_boards(width, measured, table, row, source, target)
        return np.fmax(time, least_us), width, method

    def _alike(self, shapeless: Bools, times: Floats, source: Machine) -> Equivalents:
        """What takes as long on the source as the kernels without shapes, which are mostly the same for each target."""
        key = shapeless.tobytes()
        if key not in self._equivalents:
            self._equivalents[key] = Equivalents(self._runs.table, self._row[shapeless], times, source, self._weights)
        return self._equivalents[key]

    def _missed_on(self, source: Machine, target: Machine, weights: Weights) -> tuple[Missed, Floats]:
        """What the model misses on the source, and the part of the counted work that the measured times allow."""
        # The trace itself tells how its GPU runs; a calibration of it matters where the target has one to compare with.
        calibrated = (weights.calibrates(self._runs.on(gpu).table, gpu).any() for gpu in (source, target))
        if (key := all(calibrated)) not in self._missed:
            rows, measured = self._runs.on(source), np.maximum(self._measured, SHORTEST_US)
            there = model(rows, source, weights if key else self._weights)
            log_ratio = np.log(measured / there.time_us[self._row])
            done = np.fmin(measured / there.bound_us[self._row], 1.0)
            self._missed[key] = missed(rows.table, self._row, log_ratio), done
        return self._missed[key]


def _had_matrix_units(source: Machine | None) -> pl.Expr:
    """Whether rows might have run on matrix units in fp32: of those measured nobody knows where, it can't be told."""
    return pl.col("measured_us").is_null() if source is None else pl.lit(has_tf32(source.gpu))


def _gpu(gpu: str | Gpu) -> Gpu:
    return gpu if isinstance(gpu, Gpu) else resolve_gpu(gpu).gpu


def _alone(kernels: Split, gpu: Machine, weights: Weights, calibrated: Iterable[Machine]) -> Modelled:
    """The model, and where other GPUs were calibrated, in order with what that says of them."""
    alone = model(kernels, gpu, weights)
    own = weights.calibrates(kernels.table, gpu)
    for other in calibrated:
        if other.slug == gpu.slug or not ordered(gpu, other):
            continue
        there = model(kernels, other, weights).time_us
        there = np.where(weights.calibrates(kernels.table, other) & ~own, there, np.nan)
        dtypes = kernels.table["dtype"]
        time_us = in_order(alone.time_us, there, dtypes, dtypes, np.arange(there.size), other, gpu)
        alone = replace(alone, time_us=np.maximum(time_us, alone.bound_us))
    return alone
