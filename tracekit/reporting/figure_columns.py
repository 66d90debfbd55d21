"""Table columns of figures: the likely value, and both ends of its interval."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.sections.figure import Figure
from tracekit.schema import TableColumn


def list_figure_columns(name: str, meaning: str) -> Iterator[TableColumn]:
    """Yield the three columns of a figure."""
    for end, part in (("", ""), ("_low", ", lower end of the 90 % interval"), ("_high", ", upper end")):
        yield TableColumn(f"{name}{end}", pl.Float64, f"{meaning}{part}.")


def spread_figure(name: str, figure: Figure | None) -> dict[str, float | None]:
    """Return the values of a figure's columns."""
    likely, low, high = (figure.likely, figure.low, figure.high) if figure else (None, None, None)
    return {name: likely, f"{name}_low": low, f"{name}_high": high}
