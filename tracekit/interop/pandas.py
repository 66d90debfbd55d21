"""Convert traces to pandas data frames."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import polars as pl

from tracekit.errors import TracekitError
from tracekit.messages.requests import EXTRA_MISSING, PACKAGE_MISSING

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.trace import Trace


def import_package(package: str, distribution: str, extra: str | None = None) -> ModuleType:
    """Import an optional package.

    Args:
        package: Name of the module.
        distribution: Usual name of the package.
        extra: tracekit's extra that installs it; None to install it by its own name.

    Raises:
        TracekitError: The package isn't installed, or one of its own requirements isn't.
    """
    try:
        return import_module(package)
    except ImportError as error:
        shown = {"distribution": distribution, "reason": str(error)}
        missing = (
            PACKAGE_MISSING(**shown, install=distribution) if extra is None else EXTRA_MISSING(**shown, extra=extra)
        )
        raise TracekitError(missing) from error


def to_pandas(trace: "Trace") -> "dict[str, pd.DataFrame]":
    """Return the tables of all ranks by name, with the columns and rows of :meth:`tracekit.trace.Trace.to_polars`."""
    return {name: to_pandas_frame(table) for name, table in trace.to_polars().items()}


def to_pandas_frame(table: pl.DataFrame) -> "pd.DataFrame":
    """Convert one table. Integer columns with missing values become ``Int64`` with ``<NA>``; texts become objects."""
    pd = import_package("pandas", "pandas")
    return pd.DataFrame({column.name: _convert_values(column) for column in table})


def _convert_values(column: pl.Series) -> object:
    pd = import_package("pandas", "pandas")
    if not column.dtype.is_integer() or not column.null_count():
        return column.to_numpy()
    return pd.arrays.IntegerArray(column.fill_null(0).to_numpy(writable=True), column.is_null().to_numpy(writable=True))
