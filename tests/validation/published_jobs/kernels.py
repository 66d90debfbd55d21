"""Predict the times of captured kernels on a GPU."""

import numpy as np
import polars as pl

from predictors import Batch, Gpu, load_gpu
from predictors.result import SHARED_ERROR_FRACTION
from tracekit.prediction.clock import (
    change_clock,
    compute_demands_us,
    compute_source_slowdown,
    compute_target_slowdown,
    regulates_clock,
    spread_slowdown,
)
from tracekit.prediction.intervals import PS_PER_US, KernelSums, compute_end_factors, number_families
from tracekit.prediction.kernel_times import leave_out_layout_changes


def predict_from_shapes(table: pl.DataFrame, gpu: str) -> pl.DataFrame:
    """Predict kernels that run one after the other on a GPU without any measured time."""
    alone = leave_out_layout_changes(table, add_families(table, Batch(table).on(gpu)), load_gpu(gpu))
    return hold_clock(alone, load_gpu(gpu)).drop("family", "dtype")


def hold_clock(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """Return kernels that run one after the other at the clock that a step of them all keeps."""
    step_us = float(kernels["time_us"].sum())
    if not regulates_clock(gpu):
        return kernels
    slowdown = compute_target_slowdown(float(compute_demands_us(kernels, gpu).sum()), step_us)
    return change_clock(kernels, spread_slowdown(kernels, slowdown), gpu) if slowdown > 1 else kernels


def predict_carried(table: pl.DataFrame, source_gpu: str, gpu: str, slower: float) -> pl.DataFrame:
    """Predict on ``gpu`` kernels that took ``slower`` times what is predicted from shapes on ``source_gpu``."""
    taken_us = predict_from_shapes(table, source_gpu)["time_us"]
    measured = table.with_columns(measured_us=pl.when(taken_us > 0).then(taken_us * slower))
    batch, source = Batch(measured, source_gpu=source_gpu), load_gpu(source_gpu)
    there, here = (
        leave_out_layout_changes(table, add_families(table, batch.on(one)), load_gpu(one)) for one in (gpu, source_gpu)
    )
    if regulates_clock(source):
        slowdown = compute_source_slowdown(float(compute_demands_us(here, source).sum()), float(here["time_us"].sum()))
        there = change_clock(there, 1 / spread_slowdown(here, slowdown), load_gpu(gpu))
    return hold_clock(there, load_gpu(gpu)).drop("family", "dtype")


def add_families(table: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Return predicted times with the kernels' families and types; kernels of unknown work are fills of few numbers."""
    return pl.concat([table.select("family", "dtype"), times], how="horizontal").with_columns(
        pl.col("time_us", "low_us", "high_us").fill_null(0.0)
    )


def sum_kernel_times(table: pl.DataFrame, times: pl.DataFrame) -> tuple[float, float, float]:
    """Return the sum of the kernels' times and its interval."""
    repeat = table.select(pl.struct("name", "op", "input_dims").rank("dense")).to_series().to_numpy()
    known = add_families(table, times)
    known = known.with_columns(shared_us=pl.col("time_us") * pl.col("shared_error").fill_null(SHARED_ERROR_FRACTION))
    family = np.zeros(int(repeat.max()) + 1, np.int64)
    family[repeat] = table.select(number_families())["family"].to_numpy()
    time_ps, low_ps, high_ps, shared_ps = (
        np.bincount(repeat, np.rint(known[name].to_numpy() * PS_PER_US)).astype(np.float64)
        for name in ("time_us", "low_us", "high_us", "shared_us")
    )
    low, high = compute_end_factors(KernelSums(time_ps, low_ps, high_ps, shared_ps, family), known_bias=1.0)
    time_us = float(known["time_us"].sum())
    return time_us, low * time_us, high * time_us
