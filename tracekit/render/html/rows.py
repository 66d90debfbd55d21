"""The kernel table as the page's script takes it."""

from typing import Any

import msgspec

from tracekit.reporting.model import Report
from tracekit.reporting.sections.kernels import KernelTime
from tracekit.units import shape, shorten

ROWS = 2000
"""Most kernels in a page."""
ROWS_BYTES = 3_000_000
"""Most bytes that they may take: templates make names of kilobytes."""
LONGEST_NAME = 1000
LONGEST_SHAPE = 300


def kernel_rows(report: Report) -> tuple[list[list[Any]], int]:
    """The kernels with most time as lists, and how many are left out."""
    rows: list[list[Any]] = []
    size = 0
    for kernel in report.kernels[:ROWS]:
        row = _row(kernel)
        size += len(msgspec.json.encode(row))
        if size > ROWS_BYTES:
            break
        rows.append(row)
    return rows, len(report.kernels) - len(rows)


def _row(kernel: KernelTime) -> list[Any]:
    return [
        kernel.family,
        kernel.op or "",
        kernel.dtype or "",
        shorten(shape(kernel.shape), LONGEST_SHAPE),
        shorten(kernel.name, LONGEST_NAME),
        kernel.count,
        kernel.time_us,
        kernel.share,
        kernel.utilization,
        kernel.limiter,
        kernel.predicted_us,
        kernel.limiters,
        kernel.methods,
    ]
