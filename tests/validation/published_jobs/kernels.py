"""Tabulate captured kernels, and predict their times on a GPU."""

from collections.abc import Sequence
from itertools import repeat

import numpy as np
import polars as pl

from predictors import Batch
from tests.validation.published_jobs.capture import Call
from tests.validation.published_jobs.trace import GAP_US, build_trace
from tracekit.parallelism.relayout import add_measured_times
from tracekit.prediction.intervals import compute_interval_times, number_repeats
from tracekit.run import prepare_run

LONG_US = 1e6
"""Time of captured kernels, so that none is taken for faster than its arithmetic allows."""


def tabulate_kernels(calls: Sequence[Call]) -> pl.DataFrame:
    """Return the kernels as tracekit reads them from a trace, without their times."""
    trace = build_trace(calls, repeat(LONG_US), host_us=GAP_US)
    return add_measured_times(prepare_run(trace, source_gpu="v100-sxm-16gb").program).drop("measured_us")


def predict_carried(table: pl.DataFrame, source_gpu: str, gpu: str, slower: float) -> pl.DataFrame:
    """Predict on ``gpu`` kernels that took ``slower`` times what is predicted from shapes on ``source_gpu``."""
    measured = table.with_columns(measured_us=Batch(table).on(source_gpu)["time_us"] * slower)
    return Batch(measured, source_gpu=source_gpu).on(gpu)


def sum_kernel_times(table: pl.DataFrame, times: pl.DataFrame) -> tuple[float, float, float]:
    """Return the sum of the kernels' times and its interval; kernels of unknown work are fills of few numbers."""
    known = pl.concat([table.select("family"), times], how="horizontal").with_columns(
        pl.col("time_us", "low_us", "high_us").fill_null(0.0)
    )
    everything = np.ones(table.height, dtype=np.bool_)
    ends = compute_interval_times(known, number_repeats(table), everything)
    time_us, low_us, high_us = (float(end.sum()) for end in ends)
    return time_us, low_us, high_us
