"""Predict kernel latencies on GPUs: by the model alone, or from a measurement on another GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats
from predictors.calibrate import calibrate
from predictors.cpu_times import predict_on_cpu
from predictors.gpu import Gpu
from predictors.gpu_names import resolve_gpu
from predictors.hardware import Hardware, derive_hardware, has_tf32
from predictors.kernel_identity import IDENTITY_COLUMNS
from predictors.kernels import complete_columns
from predictors.model import KernelsByLaw, ModelTimes, classify_bounds, describe_tiles, evaluate_kernels
from predictors.peers import compute_source_limits, share_peers
from predictors.power import compute_demand_w, limit_power_w
from predictors.result import (
    METHOD_INFERRED,
    METHOD_LAW,
    METHOD_MEASURED,
    METHOD_SCALED,
    METHOD_TRANSFER,
    METHOD_UNCHANGED,
    METHOD_UNKNOWN,
    OTHER_VENDOR_HALF_WIDTH,
    SCALED_HALF_WIDTH,
    SHARED_ERROR_FRACTION,
    SLOWNESS_HALF_WIDTH,
    UNCHANGED_HALF_WIDTH,
    LaunchTimes,
    LogIntervals,
    add_shared_error,
    build_result,
    compute_log_intervals,
)
from predictors.transfer import (
    KernelErrors,
    SourceErrors,
    StackErrors,
    cap_same_die_interval,
    classify_kinship,
    compare_gpus,
    compute_interval_ends,
    compute_target_correction,
    enforce_dominance,
    keep_host_copy_overhead,
    split_source_errors,
    tabulate_errors,
)
from predictors.weights_file import LawCalibration, Weights, load_hardware, load_weights
from predictors.without_shapes import EQUIVALENT_HALF_WIDTH, EquivalentKernels, MeasuredTimes, ScaledTimes

MIN_MEASURED_US = 0.5
"""What a time of 0 is taken for: old traces count whole microseconds."""
UNCHANGED_FAMILIES = ("collective",)

CalibrationTable = dict[tuple[str, str], LawCalibration]


def predict(
    kernels: pl.DataFrame,
    gpu: str | Gpu,
    *,
    source_gpu: str | Gpu | None = None,
    weights: str | Path | None = None,
    calibrations: Mapping[Gpu, pl.DataFrame] | None = None,
) -> pl.DataFrame:
    """Predict the latency of each kernel on a GPU. For several GPUs, ``Batch`` does the same in less time.

    Args:
        kernels: One kernel per row: ``family``, ``dtype`` and the columns of that family; optionally ``measured_us``,
            the latency on ``source_gpu`` (see ``predictors.kernels``).
        gpu: Target: a ``Gpu`` or any known spelling of its name.
        source_gpu: GPU that ``measured_us`` was measured on. Without it the measurements are not used.
        weights: Folder with fitted weights; default: those that ship.
        calibrations: GPU -> kernel table with ``measured_us`` on that GPU (see ``predictors.calibrate``).

    Returns:
        One row per kernel, in order: ``time_us``, ``low_us``, ``high_us`` (a 90 % interval), ``bound_us`` (least
        possible time; null without a shape), ``utilization`` (bound / time; over 1 only where a measured time is below
        the bound, which means a wrong work count), ``power_w`` (the board's mean power meanwhile), ``demand_w`` (that
        power without a limit), ``shared_error`` (the fraction of its error that other kernels of its family share
        in a job, see ``predictors.result.sum_with_interval``), ``limiter`` ('compute', 'memory', 'latency', 'link',
        'unknown'),
        ``method`` ('measured', 'law', 'transfer', 'scaled', 'kept', 'unknown') and ``runs_as``, the dtype really used
        where it differs from the row's.

    Raises:
        UnknownGpuError: No GPU has that name.
        AmbiguousGpuError: Several GPUs match the name.
        KernelTableError: A family or dtype is unknown, a column has a wrong type, or a calibration has no kernel with
            both a shape and a measurement.
        WeightsError: There are no readable weights.
    """
    target = _to_gpu(gpu)
    return Batch(kernels, source_gpu=source_gpu, weights=weights).on(target, calibrations)


class Batch:
    """Kernels that are predicted for one GPU after the other.

    A trace repeats its kernels in every step and layer. Each distinct kernel is evaluated once per GPU. The errors on
    the source GPU are computed once for all targets.

    Args:
        kernels: As for ``predict``.
        source_gpu: As for ``predict``.
        weights: As for ``predict``.
        job_errors: What :meth:`tabulate_errors` tells of all kernels of a job that these are part of; by default they
            are all.

    Raises:
        UnknownGpuError: No GPU has the name of the source.
        AmbiguousGpuError: Several GPUs match it.
        KernelTableError: A family or dtype is unknown, or a column has a wrong type.
        WeightsError: There are no readable weights.
    """

    def __init__(
        self,
        kernels: pl.DataFrame,
        *,
        source_gpu: str | Gpu | None = None,
        weights: str | Path | None = None,
        job_errors: StackErrors | None = None,
    ) -> None:
        self._source = derive_hardware(_to_gpu(source_gpu)) if source_gpu is not None else None
        self._weights, self._job_errors = load_weights(weights), job_errors
        table = _forget_impossible_units(complete_columns(kernels), self._source)
        self._measured = table["measured_us"].to_numpy()
        given = [name for name in table.columns if name in {*kernels.columns, *IDENTITY_COLUMNS} - {"measured_us"}]
        each = np.arange(table.height)
        alike = pl.DataFrame({"kernel": table[given].hash_rows(), "row": each})
        first = alike.select(pl.col("row").first().over("kernel"))[:, 0].to_numpy()
        distinct = first == each
        self._row = (np.cumsum(distinct) - 1)[first]
        shapes = [name for name in table.columns if name != "measured_us"]
        self._peers = share_peers(table[shapes][np.flatnonzero(distinct)], self._weights)
        self._runs = self._peers.runs
        self._shapeless: dict[bytes, tuple[MeasuredTimes, EquivalentKernels]] = {}
        self._offsets: dict[Gpu, CalibrationTable] = {}
        self._missed: dict[bool, tuple[SourceErrors, Floats]] = {}

    def on(self, gpu: str | Gpu, calibrations: Mapping[Gpu, pl.DataFrame] | None = None) -> pl.DataFrame:
        """Predict the kernels on a GPU and return what ``predict`` returns.

        Args:
            gpu: As for ``predict``.
            calibrations: As for ``predict``; the table of one GPU must be the same in each call.

        Raises:
            UnknownGpuError: No GPU has that name.
            AmbiguousGpuError: Several GPUs match the name.
            KernelTableError: A calibration has no kernel with both a shape and a measurement.
        """
        alone, launches = self._predict(gpu, calibrations or {})
        return build_result(alone, self._row, launches, derive_hardware(_to_gpu(gpu)))

    def predict_time_us(self, gpu: str | Gpu, calibrations: Mapping[Gpu, pl.DataFrame] | None = None) -> pl.Series:
        """Predict only the column ``time_us`` of :meth:`on`, which takes less time."""
        return pl.Series("time_us", self._predict(gpu, calibrations or {})[1].time_us, nan_to_null=True)

    def _predict(self, gpu: str | Gpu, calibrations: Mapping[Gpu, pl.DataFrame]) -> tuple[ModelTimes, LaunchTimes]:
        """Return the model's times of the distinct kernels, and the times of each row."""
        target, source = derive_hardware(_to_gpu(gpu)), self._source
        if target.gpu.is_cpu:
            return predict_on_cpu(self._runs, self._row, self._measured, source, target)
        if source is not None and source.gpu.is_cpu:
            source = None
        weights = self._calibrate(calibrations)
        alone = self._peers.evaluate_calibrated(target, weights)
        alone = _limit_by_calibrations(
            alone, self._runs.split_for_gpu(target), target, weights, map(derive_hardware, calibrations)
        )
        unknown = np.isnan(alone.time_us)[self._row]
        time, intervals = alone.time_us[self._row], self._compute_intervals(alone.kernels, target, weights)
        width, centre, shared = intervals
        method = np.where(unknown, METHOD_UNKNOWN, METHOD_LAW)
        if source is not None and source.slug == target.slug:
            known = ~np.isnan(self._measured)
            time = np.where(known, self._measured, time)
            width, centre = np.where(known, 0.0, width), np.where(known, 0.0, centre)
            method = np.where(known, METHOD_MEASURED, method)
        endless = np.full(time.size, np.nan)
        launches = LaunchTimes(time, width, centre, shared, method, endless, endless)
        if source is not None and source.slug != target.slug:
            launches = self._transfer_times(alone, launches, source, target, weights)
        return alone, launches

    def _compute_intervals(self, kernels: KernelsByLaw, target: Hardware, weights: Weights) -> LogIntervals:
        """Return the interval of each row: of a carried time where another GPU measured it, else of the model's."""
        source = self._source
        carried = source is not None and source.slug != target.slug
        found = [
            each[self._row] for each in compute_log_intervals(kernels, target, weights, source if carried else None)
        ]
        unmeasured = np.isnan(self._measured)
        if carried and unmeasured.any():
            alone = compute_log_intervals(kernels, target, weights)
            found = [np.where(unmeasured, own[self._row], each) for own, each in zip(alone, found, strict=True)]
        return LogIntervals(*found)

    def predict_power_w(self, gpu: str | Gpu, time_us: pl.Series) -> pl.Series:
        """Predict the power of a GPU's board during each kernel, in watts; null where its time is.

        Args:
            gpu: As for ``predict``.
            time_us: Time of each kernel there.
        """
        there = derive_hardware(_to_gpu(gpu))
        demand_w = compute_demand_w(self._runs.split_for_gpu(there), self._row, time_us.to_numpy(), there)
        return pl.Series("power_w", limit_power_w(demand_w, there), nan_to_null=True)

    def get_work(self, gpu: str | Gpu) -> pl.DataFrame:
        """Return each kernel's work as it runs on a GPU: ``law`` that models it, ``work_flops`` and ``work_bytes``."""
        table = self._runs.split_for_gpu(derive_hardware(_to_gpu(gpu))).table
        work: pl.DataFrame = table[["law", "work_flops", "work_bytes"]][self._row]
        return work

    def get_bound_limiters(self, gpu: str | Gpu) -> pl.Series:
        """Return what each kernel's ``bound_us`` on a GPU depends on: 'compute' or 'memory'; null without a bound."""
        target = derive_hardware(_to_gpu(gpu))
        found: pl.Series = classify_bounds(self._runs.split_for_gpu(target), target)[self._row]
        return found

    def get_tiles(self, gpu: str | Gpu) -> pl.DataFrame:
        """Return the tiles that each matrix product has on a GPU by its law (see ``predictors.model``)."""
        target = derive_hardware(_to_gpu(gpu))
        tiles: pl.DataFrame = describe_tiles(self._runs.split_for_gpu(target), target, self._weights)[self._row]
        return tiles

    def tabulate_errors(self, gpu: str | Gpu, calibrations: Mapping[Gpu, pl.DataFrame] | None = None) -> KernelErrors:
        """Tabulate what the model misses on the source, which has to be known.

        Args:
            gpu: As for ``predict``; another one than the source.
            calibrations: As for ``predict``.
        """
        assert self._source is not None
        source, target, weights = self._source, derive_hardware(_to_gpu(gpu)), self._calibrate(calibrations or {})
        rows = self._runs.split_for_gpu(source)

        def tabulate(weights: Weights) -> pl.DataFrame:
            return tabulate_errors(rows, self._row, self._compare_with_source(source, weights)[0])

        return KernelErrors(
            tabulate(self._weights),
            tabulate(weights) if weights.calibrated else None,
            self._find_calibrated(source, target, weights),
        )

    def _calibrate(self, calibrations: Mapping[Gpu, pl.DataFrame]) -> Weights:
        calibrated = {key: own for one in calibrations.items() for key, own in self._calibrate_gpu(*one).items()}
        return replace(self._weights, calibrated=calibrated)

    def _calibrate_gpu(self, gpu: Gpu, kernels: pl.DataFrame) -> CalibrationTable:
        if gpu not in self._offsets:
            self._offsets[gpu] = calibrate(kernels, gpu, self._weights).calibrated
        return self._offsets[gpu]

    def _transfer_times(
        self, alone: ModelTimes, by_law: LaunchTimes, source: Hardware, target: Hardware, weights: Weights
    ) -> LaunchTimes:
        """From another GPU: by the model where it knows the shape, by a resource's ratio elsewhere."""
        method, width, centre = by_law.method, by_law.half_width, by_law.centre
        row, kernels, measured = self._row, alone.kernels, np.maximum(self._measured, MIN_MEASURED_US)
        time, least_us = self._carry_times(alone, source, target, weights)
        # Of GPUs that share the carried factor, the model's order holds; those that don't are asked one by one.
        free = ~kernels.find_calibrated(target, weights)
        for peer in self._peers.list_bordering(target, partial(self._group_by_factor, source)):
            there = self._carry_times(self._peers.evaluate(peer), source, peer, self._weights)[0]
            raises = free & self._peers.are_comparable(target, peer)
            time = np.where(raises[row], np.fmax(time, there), time)
        known = ~np.isnan(measured)
        kept = known & kernels.family.is_in(*UNCHANGED_FAMILIES)[row]
        shapeless = known & ~kept & (method == METHOD_UNKNOWN)
        method = np.where(
            kept, METHOD_UNCHANGED, np.where(shapeless, METHOD_SCALED, np.where(known, METHOD_TRANSFER, method))
        )
        time, width = np.where(kept, measured, time), np.where(kept, UNCHANGED_HALF_WIDTH, width)
        least, most = (limit[row] for limit in compute_source_limits(self._runs, self._peers, source, target))
        of_source = self._runs.split_for_gpu(source)
        ends = [
            np.where((free & np.isfinite(ratio))[row] & ~kept, measured * ratio[row], np.nan)
            for ratio in compute_interval_ends(kernels, of_source, source, target)
        ]
        if shapeless.any():
            scaled = self._scale_times(shapeless, source, target, weights)
            time[shapeless], width[shapeless] = scaled.time_us, scaled.half_width
            inferred = self._get_shapeless(shapeless, source)[1].inferred
            method[shapeless] = np.where(inferred, METHOD_INFERRED, METHOD_SCALED)
            ends[0][shapeless] = np.fmax(ends[0][shapeless], scaled.least_us)
            ends[1][shapeless] = np.fmin(ends[1][shapeless], scaled.most_us)
        time = np.fmin(np.fmax(time, measured * least), measured * most)
        centre = np.where(kept | shapeless, 0.0, centre)
        shared = by_law.shared
        if classify_kinship(source, target) != "sibling":
            slowness = SLOWNESS_HALF_WIDTH * np.abs(self._get_source_errors(source, target, weights)[0].stack)
            width, shared = add_shared_error(width, shared, np.where(kept | shapeless, 0.0, slowness))
        shared = np.where(kept | shapeless, SHARED_ERROR_FRACTION, shared)
        capped = cap_same_die_interval(width, measured, kernels, row, source, target)
        centre = np.where(capped < width, 0.0, centre)
        return LaunchTimes(np.fmax(time, least_us), capped, centre, shared, method, *ends)

    def _carry_times(
        self, alone: ModelTimes, source: Hardware, target: Hardware, weights: Weights
    ) -> tuple[Floats, Floats]:
        """Return each row's time by the model and by what it misses on the source, and the least time."""
        row, measured = self._row, np.maximum(self._measured, MIN_MEASURED_US)
        kernels = self._runs.split_for_gpu(target)
        (amiss, done), alone_us = self._get_source_errors(source, target, weights), alone.time_us[row]
        carried = np.exp(compute_target_correction(amiss, kernels, row, source, target, weights))
        least_us = alone.bound_us[row] * done
        time = np.maximum(alone_us * carried, least_us)
        return keep_host_copy_overhead(time, measured, amiss, alone_us, kernels, row), least_us

    def _group_by_factor(self, source: Hardware, gpu: Hardware) -> tuple[object, ...]:
        """Return what the factor on the model's times depends on that the measurements imply."""
        kinships = classify_kinship(source, gpu), classify_kinship(source.on_mma, gpu.on_mma)
        return (*kinships, id(self._runs.split_for_gpu(gpu)))

    def _scale_times(self, shapeless: Bools, source: Hardware, target: Hardware, weights: Weights) -> ScaledTimes:
        """Return times of rows without a shape, by an equivalent kernel or a resource's ratio, and their intervals."""
        there, alike = self._get_shapeless(shapeless, source)
        scaled = there.scale_with_bracket(target)
        time, width = scaled.time_us, np.where(alike.told, EQUIVALENT_HALF_WIDTH, SCALED_HALF_WIDTH + scaled.half_width)
        if not alike.told.all():
            for slug in self._weights.order.list_better(target.gpu):
                time = np.fmax(time, there.scale(load_hardware(slug)))
        time = np.where(alike.told, there.limit(target, alike.predict_times(target, weights)), time)
        same_vendor = source.gpu.vendor == target.gpu.vendor
        beyond = np.exp(SCALED_HALF_WIDTH if same_vendor else OTHER_VENDOR_HALF_WIDTH)
        return ScaledTimes(time, width, scaled.least_us / beyond, scaled.most_us * beyond)

    def _get_shapeless(self, shapeless: Bools, source: Hardware) -> tuple[MeasuredTimes, EquivalentKernels]:
        """What kernels without shapes took on the source, and what takes as long; mostly the same for each target."""
        key = shapeless.tobytes()
        if key not in self._shapeless:
            row, times = self._row[shapeless], np.maximum(self._measured[shapeless], MIN_MEASURED_US)
            self._shapeless[key] = (
                MeasuredTimes(self._runs.table, row, times, source),
                EquivalentKernels(self._runs.table, row, times, source, self._weights),
            )
        return self._shapeless[key]

    def _get_source_errors(self, source: Hardware, target: Hardware, weights: Weights) -> tuple[SourceErrors, Floats]:
        """What the model misses on the source, and the part of the counted work that the measured times allow."""
        # The trace itself tells how its GPU runs; a calibration of it matters where the target has one to compare with.
        job = self._job_errors
        key = job.is_calibrated if job else all(self._find_calibrated(source, target, weights))
        if key not in self._missed:
            log_ratio, done = self._compare_with_source(source, weights if key else self._weights)
            rows = self._runs.split_for_gpu(source)
            self._missed[key] = split_source_errors(rows, self._row, log_ratio, job.medians if job else None), done
        return self._missed[key]

    def _find_calibrated(self, source: Hardware, target: Hardware, weights: Weights) -> tuple[bool, bool]:
        """Return whether calibrations say something of the kernels on the source, and on the target."""
        here, there = (
            bool(weights.calibrated) and bool(self._runs.split_for_gpu(gpu).find_calibrated(gpu, weights).any())
            for gpu in (source, target)
        )
        return here, there

    def _compare_with_source(self, source: Hardware, weights: Weights) -> tuple[Floats, Floats]:
        """Return log(measured / modelled) on the source, and the part of the counted work that was done there."""
        measured = np.maximum(self._measured, MIN_MEASURED_US)
        there = evaluate_kernels(self._runs.split_for_gpu(source), source, weights)
        return np.log(measured / there.time_us[self._row]), np.fmin(measured / there.bound_us[self._row], 1.0)


def _forget_impossible_units(table: pl.DataFrame, source: Hardware | None) -> pl.DataFrame:
    """Forget which units rows ran on where the source's can't tell; of rows measured nobody knows where, they can't."""
    if source is not None and has_tf32(source.gpu):
        return table
    untold = pl.col("measured_us").is_null() if source is None else pl.lit(value=False)
    return table.with_columns(tensor_core=pl.when(untold).then("tensor_core"))


def _to_gpu(gpu: str | Gpu) -> Gpu:
    return gpu if isinstance(gpu, Gpu) else resolve_gpu(gpu).gpu


def _limit_by_calibrations(
    alone: ModelTimes, kernels: KernelsByLaw, gpu: Hardware, weights: Weights, calibrated: Iterable[Hardware]
) -> ModelTimes:
    """Put the model's times in order with what calibrations say of other GPUs."""
    own = kernels.find_calibrated(gpu, weights)
    for other in calibrated:
        if other.slug == gpu.slug or not any(compare_gpus(gpu, other)):
            continue
        there = evaluate_kernels(kernels, other, weights).time_us
        there = np.where(kernels.find_calibrated(other, weights) & ~own, there, np.nan)
        time_us = enforce_dominance(alone.time_us, there, kernels.dtype, other, gpu)
        alone = replace(alone, time_us=np.maximum(time_us, alone.bound_us))
    return alone
