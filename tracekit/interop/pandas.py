"""Traces as pandas frames."""

from typing import TYPE_CHECKING

import polars as pl

from tracekit.interop.packages import require
from tracekit.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


def to_pandas(trace: Trace) -> "dict[str, pd.DataFrame]":
    """The tables by name, of all ranks: columns and rows as in :meth:`tracekit.trace.Trace.to_polars`."""
    return {name: frame(table) for name, table in trace.to_polars().items()}


def frame(table: pl.DataFrame) -> "pd.DataFrame":
    """One table; whole numbers stay whole (``Int64``, with ``<NA>``) where some are missing, and texts are objects."""
    pd = require("pandas", "pandas", "pip install pandas")
    return pd.DataFrame({column.name: _values(column) for column in table})


def _values(column: pl.Series) -> object:
    pd = require("pandas", "pandas", "pip install pandas")
    if not column.dtype.is_integer() or not column.null_count():
        return column.to_numpy()
    return pd.arrays.IntegerArray(column.fill_null(0).to_numpy(writable=True), column.is_null().to_numpy(writable=True))
