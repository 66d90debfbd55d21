"""The kernels that a report is about, as every section needs them."""

from collections.abc import Sequence

import polars as pl

import predictors
from tracekit.prediction import Prediction
from tracekit.replay.run import Run


def in_steps(run: Run, targets: Sequence[Prediction]) -> pl.DataFrame:
    """The chosen steps' kernels with their bound on the source GPU and their times on the targets.

    Returns:
        The kernel table with ``time_us``, ``bound_us`` and ``limiter`` on the source GPU (null if that isn't known),
        and for the i-th target ``target i``, its time in microseconds.
    """
    bounds = {"bound_us": pl.lit(None, pl.Float64), "limiter": pl.lit(None, pl.String)}
    if run.gpu is not None:
        alone = predictors.predict(run.kernels, run.gpu)
        bounds = {column: pl.lit(alone[column]) for column in bounds}
    predicted = {f"target {i}": target.kernels["time_us"] for i, target in enumerate(targets)}
    table = run.kernels.with_columns(time_us=pl.col("dur_ns") / 1e3, **bounds, **predicted)
    return table.filter(pl.col("step").is_in(run.chosen["step"].implode()))
