"""Build the kernel rows that all sections of a report use."""

from collections.abc import Sequence

import polars as pl

import predictors
from predictors.columns import prepare_kernels
from predictors.hardware import derive_hardware
from tracekit.prediction import Prediction
from tracekit.run import MeasuredRun


def build_kernel_rows(run: MeasuredRun, targets: Sequence[Prediction]) -> pl.DataFrame:
    """Return the chosen steps' kernels with their bound on the source GPU and their predictions.

    Returns:
        The kernel table with its row number as ``kernel``, ``time_us``, the work (``law`` that models it,
        ``work_flops``, ``work_bytes``), ``bound_us`` and ``limiter`` on the source GPU (null if that isn't known),
        and for the i-th target ``time i`` in microseconds, ``limiter i`` and ``method i``.
    """
    work = prepare_kernels(run.kernels, derive_hardware(run.gpu) if run.gpu else None)
    bounds = {"bound_us": pl.lit(None, pl.Float64), "limiter": pl.lit(None, pl.String)}
    if run.gpu is not None:
        alone = predictors.predict(run.kernels, run.gpu)
        bounds = {column: pl.lit(alone[column]) for column in bounds}
    predicted = {
        f"{name} {i}": target.kernels[column]
        for i, target in enumerate(targets)
        for name, column in (("time", "time_us"), ("limiter", "limiter"), ("method", "method"))
    }
    table = run.kernels.with_columns(
        kernel=pl.int_range(pl.len(), dtype=pl.Int64),
        time_us=pl.col("dur_ns") / 1e3,
        **{column: work[column] for column in ("law", "work_flops", "work_bytes")},
        **bounds,
        **predicted,
    )
    return table.filter(run.is_in_chosen_steps)
