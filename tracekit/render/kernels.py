"""Kernels on a terminal."""

from collections.abc import Sequence

from rich.console import RenderableType

from tracekit.render.grid import Grid, and_more, grid
from tracekit.reporting.model import Report
from tracekit.reporting.sections.kernels import KernelTime
from tracekit.units import counted, duration, kernel_title, percent, shape, shorten

MOST_OVER_BOUND = 10


def measured(kernels: Sequence[KernelTime]) -> Grid:
    """What each took, and how near to its roofline."""
    table = grid(
        ("time", "number"), ("share", "number"), ("family", "word"), ("bound by", "number"), ("% roof", "number"),
        ("count", "number"), ("op, shapes, kernel", "text"),
    )  # fmt: skip
    for kernel in kernels:
        utilization = "–" if kernel.utilization is None else f"{kernel.utilization:.0f}"
        table.add_row(
            duration(kernel.time_us),
            percent(kernel.share),
            kernel.family,
            kernel.limiter or "–",
            utilization,
            counted(kernel.count),
            _call(kernel),
        )
    return table


def _call(kernel: KernelTime) -> str:
    """Op, shapes and kernel in one column, so that a narrow screen shows the first at least."""
    parts = (shorten(kernel.op or "", 28), shorten(shape(kernel.shape), 28), shorten(kernel_title(kernel.name), 40))
    return "  ".join(part for part in parts if part)


def predicted(report: Report, top: int) -> Grid:
    """What the largest took, and would take on each target."""
    table = grid(
        ("measured", "number"), *((target.label, "number") for target in report.targets), ("family", "word"),
        ("op, shapes, kernel", "text"),
    )  # fmt: skip
    for kernel in report.kernels[:top]:
        table.add_row(
            duration(kernel.time_us),
            *map(duration, kernel.predicted_us),
            kernel.family,
            _call(kernel),
        )
    return table


def over_bound(report: Report) -> RenderableType:
    """At most ten: a work count that is too high, or data that was in the cache."""
    table = grid(("share", "number"), ("% roof", "number"), ("family", "word"), ("why", "word"), ("kernel", "text"))
    for row in report.over_bound[:MOST_OVER_BOUND]:
        why = "cached" if row.cached else "counted too high"
        table.add_row(
            percent(row.share), f"{row.utilization:.0f}", row.family, why, shorten(kernel_title(row.name), 40)
        )
    return and_more(table, len(report.over_bound) - MOST_OVER_BOUND, "smaller ones: --json")
