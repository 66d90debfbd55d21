"""Predict the times of captured kernels on a GPU."""

import numpy as np
import polars as pl

from predictors import Batch, load_gpu
from tracekit.prediction.intervals import compute_interval_times, number_repeats
from tracekit.prediction.kernel_times import leave_out_layout_changes
from tracekit.prediction.sustained_clock import (
    change_clock,
    compute_demands_us,
    compute_source_slowdown,
    hold_clock,
    regulates_clock,
    spread_slowdown,
)


def predict_from_shapes(table: pl.DataFrame, gpu: str) -> pl.DataFrame:
    """Predict kernels that run one after the other on a GPU without any measured time."""
    alone = leave_out_layout_changes(table, add_families(table, Batch(table).on(gpu)), load_gpu(gpu))
    return hold_clock(alone, load_gpu(gpu), float(alone["time_us"].sum())).kernels.drop("family", "dtype")


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
    return hold_clock(there, load_gpu(gpu), float(there["time_us"].sum())).kernels.drop("family", "dtype")


def add_families(table: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Return predicted times with the kernels' families and types; kernels of unknown work are fills of few numbers."""
    return pl.concat([table.select("family", "dtype"), times], how="horizontal").with_columns(
        pl.col("time_us", "low_us", "high_us").fill_null(0.0)
    )


def sum_kernel_times(table: pl.DataFrame, times: pl.DataFrame) -> tuple[float, float, float]:
    """Return the sum of the kernels' times and its interval."""
    known = add_families(table, times)
    everything = np.ones(table.height, dtype=np.bool_)
    ends = compute_interval_times(known, number_repeats(table), everything)
    time_us, low_us, high_us = (float(end.sum()) for end in ends)
    return time_us, low_us, high_us
