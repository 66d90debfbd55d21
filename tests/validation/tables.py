"""Markdown tables that appear line by line, as their rows take minutes each, and cells that several have."""

import sys
from collections.abc import Iterable

import polars as pl


def print_table(heading: str, rows: Iterable[str]) -> None:
    """Prints each row as soon as it is there.

    Args:
        heading: The first line, such as ``| job | GPUs |``.
        rows: The others.
    """
    for line in (heading, "|---" * (heading.count("|") - 1) + "|"):
        sys.stdout.write(line + "\n")
    for row in rows:
        sys.stdout.write(row + "\n")
        sys.stdout.flush()


def scored(kernels: pl.DataFrame, measured: str) -> str:
    """How many kernels, their median |error| and how many of them lie in their intervals, as cells of a table.

    Args:
        kernels: With `time_us`, `low_us` and `high_us` as predicted.
        measured: The column of what they took.
    """
    error_pct = 100 * (kernels["time_us"] / kernels[measured] - 1).abs()
    inside = kernels.filter(pl.col(measured).is_between("low_us", "high_us")).height
    return f"{kernels.height} | " + (f"{error_pct.median():.0f} % | {inside}" if kernels.height else "– | –")
