"""The kernels for other programs: all of them, whatever the page or the screen leave out."""

import io
from collections.abc import Sequence

import polars as pl

from tracekit.prediction import Prediction
from tracekit.replay.run import Run
from tracekit.reporting import tables
from tracekit.reporting.model import Report


def csv(report: Report) -> str:
    """The kernels as CSV; the columns are ``tracekit.reporting.tables.KERNEL_TIMES``."""
    return tables.kernels(report).write_csv()


def parquet(report: Report) -> bytes:
    """The kernels as Parquet."""
    return in_parquet(tables.kernels(report))


def launches(run: Run, targets: Sequence[Prediction], form: str) -> bytes:
    """Every launched kernel of the trace, a row each: ``tracekit.schema.KERNELS`` and what is predicted of it.

    Args:
        run: The measured run.
        targets: Its predictions; each adds ``time_us``, ``low_us``, ``high_us``, ``limiter`` and ``method`` there.
        form: ``"parquet"`` or ``"csv"``.
    """
    predicted = [
        target.kernels[column].alias(f"{target.label} {column}")
        for target in targets
        for column in ("time_us", "low_us", "high_us", "limiter", "method")
    ]
    table: pl.DataFrame = run.kernels.with_columns(predicted)
    return in_parquet(table) if form == "parquet" else table.write_csv().encode()


def in_parquet(table: pl.DataFrame) -> bytes:
    """A table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()
