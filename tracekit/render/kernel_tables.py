"""Kernel tables for terminals."""

from collections.abc import Sequence

from rich.console import RenderableType

from tracekit.format import format_count, format_duration, format_percent, format_shape, shorten, shorten_kernel_name
from tracekit.render.grid import ColumnKind, Grid, append_omitted_count, make_grid
from tracekit.reporting.model import Report
from tracekit.reporting.sections.kernels import KernelTime

MAX_OVER_BOUND_ROWS = 10


def make_measured_table(kernels: Sequence[KernelTime]) -> Grid:
    """Make the table of measured kernels: time, and utilization of the roofline."""
    table = make_grid(
        ("time", "number"), ("of kernel time", "number"), ("family", "word"), ("bound by", "number"),
        ("% roof", "number"), ("count", "number"), ("op, shapes, kernel", "text"),
    )  # fmt: skip
    for kernel in kernels:
        utilization = "–" if kernel.utilization is None else f"{kernel.utilization:.0f}"
        table.add_row(
            format_duration(kernel.time_us),
            format_percent(kernel.share),
            kernel.family,
            kernel.limiter or "–",
            utilization,
            format_count(kernel.count),
            _format_call(kernel),
        )
    return table


def _format_call(kernel: KernelTime) -> str:
    """Format op, shapes and kernel name in one column, so that a narrow screen shows at least the op."""
    parts = (
        shorten(kernel.op or "", 28),
        shorten(format_shape(kernel.shape), 28),
        shorten(shorten_kernel_name(kernel.name), 40),
    )
    return "  ".join(part for part in parts if part)


def make_predicted_table(report: Report, top: int) -> Grid:
    """Make the table of the largest kernels: measured time, and predicted time on each target."""
    here: list[tuple[str, ColumnKind]] = [(report.source.label, "figure")] * report.has_baseline
    table = make_grid(
        *here, *((target.label, "number") for target in report.targets), ("family", "detail"),
        ("op, shapes, kernel", "text"),
    )  # fmt: skip
    for kernel in report.kernels[:top]:
        table.add_row(
            *[format_duration(kernel.time_us)] * report.has_baseline,
            *map(format_duration, kernel.predicted_us[: len(report.targets)]),
            kernel.family,
            _format_call(kernel),
        )
    return table


def make_over_bound_table(report: Report) -> RenderableType:
    """Make the table of kernels faster than their bound: work counted too high, or data from the cache."""
    table = make_grid(
        ("of kernel time", "number"), ("% roof", "number"), ("family", "word"), ("why", "word"), ("kernel", "text")
    )
    for row in report.over_bound[:MAX_OVER_BOUND_ROWS]:
        why = "cached" if row.cached else "counted too high"
        table.add_row(
            format_percent(row.share),
            f"{row.utilization:.0f}",
            row.family,
            why,
            shorten(shorten_kernel_name(row.name), 40),
        )
    return append_omitted_count(table, len(report.over_bound) - MAX_OVER_BOUND_ROWS, "smaller ones: --json")
