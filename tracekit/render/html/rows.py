"""Kernel rows for the page's script."""

from typing import Any

import msgspec

from tracekit.format import format_shape, shorten
from tracekit.reporting.model import Report
from tracekit.reporting.sections.kernels import KernelTime, Tiles

MAX_ROWS = 2000
"""Maximum number of kernels in a page."""
MAX_ROWS_BYTES = 3_000_000
"""Maximum size of the rows in bytes: C++ templates can make kernel names of kilobytes."""
MAX_NAME_CHARS = 1000
MAX_SHAPE_CHARS = 300


def build_kernel_rows(report: Report) -> tuple[list[list[Any]], int]:
    """Return the kernels with most time as lists, and the number of kernels left out."""
    rows: list[list[Any]] = []
    size = 0
    for kernel in report.kernels[:MAX_ROWS]:
        row = _build_row(kernel)
        size += len(msgspec.json.encode(row))
        if size > MAX_ROWS_BYTES:
            break
        rows.append(row)
    return rows, len(report.kernels) - len(rows)


def _build_row(kernel: KernelTime) -> list[Any]:
    return [
        kernel.family,
        kernel.op or "",
        kernel.dtype or "",
        shorten(format_shape(kernel.shape), MAX_SHAPE_CHARS),
        shorten(kernel.name, MAX_NAME_CHARS),
        kernel.count,
        kernel.time_us,
        kernel.share,
        kernel.utilization,
        kernel.limiter,
        kernel.predicted_us,
        kernel.limiters,
        kernel.methods,
        _describe_tiles(kernel.tiles),
        [_describe_tiles(tiles) for tiles in kernel.predicted_tiles],
    ]


def _describe_tiles(tiles: Tiles | None) -> str:
    """Return such as "tiles of 128 × 256, split in 2, 3.9 waves, the traced tile takes 1.3x"; nothing without tiles."""
    if tiles is None:
        return ""
    split = f", split in {tiles.split_k}" if tiles.split_k and tiles.split_k > 1 else ""
    waves = "" if tiles.waves is None else f", {tiles.waves:.2g} waves" if tiles.waves < 100 else ", 100 waves or more"
    size = f"blocks of {tiles.tile_m} queries" if tiles.tile_n is None else f"tiles of {tiles.tile_m} × {tiles.tile_n}"
    kept = f", the traced tile takes {tiles.kept_ratio:.2f}x" if tiles.kept_ratio and tiles.kept_ratio > 1.005 else ""
    return f"{size}{split}{waves}{kept}"
