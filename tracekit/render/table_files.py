"""Export the answer and the kernels as tables for other programs: nothing left out."""

import io

import polars as pl

from tracekit.escape import write_csv
from tracekit.reporting import tables
from tracekit.reporting.model import Report


def encode_csv(report: Report) -> str:
    """Return the kernels as CSV; the columns are ``tracekit.reporting.tables.KERNEL_TIMES``."""
    return write_csv(tables.build_kernel_frame(report))


def encode_parquet(report: Report) -> bytes:
    """Return the kernels as Parquet."""
    return to_parquet(tables.build_kernel_frame(report))


def encode_answer_csv(report: Report) -> str:
    """Return the measured step and the predicted ones as CSV; the columns are ``tracekit.reporting.tables.STEP``."""
    return write_csv(tables.build_answer_frame(report))


def encode_answer_parquet(report: Report) -> bytes:
    """Return the measured step and the predicted ones as Parquet."""
    return to_parquet(tables.build_answer_frame(report))


def to_parquet(table: pl.DataFrame) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()
