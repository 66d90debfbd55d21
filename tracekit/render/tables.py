"""The kernel table for other programs: every kernel, whatever the page or the screen leave out."""

import io

from tracekit.reporting import tables
from tracekit.reporting.model import Report


def csv(report: Report) -> str:
    """The kernels as CSV; the columns are ``tracekit.reporting.tables.KERNEL_TIMES``."""
    return tables.kernels(report).write_csv()


def parquet(report: Report) -> bytes:
    """The kernels as Parquet."""
    buffer = io.BytesIO()
    tables.kernels(report).write_parquet(buffer)
    return buffer.getvalue()
