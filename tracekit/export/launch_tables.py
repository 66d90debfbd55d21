"""Tables with a row per launched kernel, for other programs."""

from collections.abc import Sequence

import polars as pl

from tracekit.escape import write_csv
from tracekit.prediction import Prediction
from tracekit.render.tables import to_parquet
from tracekit.reporting.kernel_rows import choose_tiles, predict_on_source
from tracekit.reporting.tables import name_target_column
from tracekit.run import MeasuredRun


def encode_launches(run: MeasuredRun, targets: Sequence[Prediction], form: str) -> bytes:
    """Return one row per launched kernel: ``tracekit.schema.KERNELS``, its work and roofline, and the predictions.

    Args:
        run: The measured run. Its columns are ``work_flops`` and ``work_bytes`` (a multiply-add is two operations, and
            each input is read once), ``bound_us``, the least time that this takes on the run's GPU, its ``limiter``,
            ``utilization``, the bound over the time in percent, and ``power_w``, the board's power meanwhile. They are
            null where the work, or the GPU, isn't known.
        targets: The predictions from this run; each adds its ``time_us``, ``low_us``, ``high_us``, ``power_w``,
            ``limiter``, ``method``, ``bound_us`` and ``utilization``, and the tiles that it is cut into there.
        form: ``"parquet"`` or ``"csv"``.
    """
    limiter = pl.when(pl.col("bound_us").is_not_null()).then("limiter").alias("limiter")
    on_source = predict_on_source(run).select("work_flops", "work_bytes", "bound_us", limiter, "power_w")
    table = run.kernels.with_columns(on_source.iter_columns())
    table = table.with_columns(utilization=_compute_utilization(table["bound_us"], table["dur_ns"] / 1e3))
    for target, tiles in zip(targets, choose_tiles(run.kernels, run, targets), strict=True):
        there, label = target.kernels, target.label
        columns = ("time_us", "low_us", "high_us", "power_w", "limiter", "method", "bound_us")
        share = _compute_utilization(there["bound_us"], there["time_us"])
        table = table.with_columns(
            *(there[column].alias(name_target_column(label, column)) for column in columns),
            share.alias(name_target_column(label, "utilization")),
            *(column.alias(name_target_column(label, column.name)) for column in tiles),
        )
    return to_parquet(table) if form == "parquet" else write_csv(table).encode()


def _compute_utilization(bound_us: pl.Series, time_us: pl.Series) -> pl.Series:
    """Return the bound over the time in percent; null where either isn't known, or the time is zero."""
    share = 100 * bound_us / time_us
    return share.set(share.is_infinite() | share.is_nan(), None)
