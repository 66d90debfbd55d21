"""Export kernel tables for other programs: all kernels, none left out."""

import io
from collections.abc import Sequence

import polars as pl

from tracekit.prediction import Prediction
from tracekit.reporting import tables
from tracekit.reporting.model import Report
from tracekit.run import MeasuredRun


def encode_csv(report: Report) -> str:
    """Return the kernels as CSV; the columns are ``tracekit.reporting.tables.KERNEL_TIMES``."""
    return tables.build_kernel_frame(report).write_csv()


def encode_parquet(report: Report) -> bytes:
    """Return the kernels as Parquet."""
    return to_parquet(tables.build_kernel_frame(report))


def encode_launches(run: MeasuredRun, targets: Sequence[Prediction], form: str) -> bytes:
    """Return one row per launched kernel: ``tracekit.schema.KERNELS`` and the predictions.

    Args:
        run: The measured run.
        targets: The predictions from this run; each adds its ``time_us``, ``low_us``, ``high_us``, ``limiter`` and
            ``method``.
        form: ``"parquet"`` or ``"csv"``.
    """
    predicted = [
        target.kernels[column].alias(f"{target.label} {column}")
        for target in targets
        for column in ("time_us", "low_us", "high_us", "limiter", "method")
    ]
    table: pl.DataFrame = run.kernels.with_columns(predicted)
    return to_parquet(table) if form == "parquet" else table.write_csv().encode()


def to_parquet(table: pl.DataFrame) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()
