"""Types of the flat arrays, and functions on them.

A query of polars costs more than all else that is done with a few rows, so columns are read and made without one.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.datatypes import DataType, DataTypeClass

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def compute_least_from(values: Ints) -> Ints:
    """Return the least value from each place on: ``[3, 1, 2]`` gives ``[1, 1, 2]``."""
    least: Ints = np.minimum.accumulate(values[::-1])[::-1]
    return least


def fill_nulls(values: pl.Series, number: int) -> Ints:
    """Return a column of integers with a number in place of nulls."""
    filled: Ints = (values.fill_null(number) if values.null_count() else values).to_numpy()
    return filled


def list_distinct(values: pl.Series) -> list[Any]:
    """List the distinct values of a column in no order, without null."""
    return [value for value in values.value_counts()[values.name] if value is not None] if values.count() else []


def is_unique(values: pl.Series) -> bool:
    """Return whether no two values of a column are equal; nulls don't count."""
    return values.n_unique() - (values.null_count() > 0) == values.count()


def make_column(name: str, values: Ints, null: int) -> pl.Series:
    """Make a column of integers in which one number stands for null."""
    column, missing = pl.Series(name, values, dtype=pl.Int64), values == null
    return column.set(pl.Series(missing), None) if missing.any() else column


def make_nulls(name: str, count: int, dtype: DataType | DataTypeClass = pl.Int64) -> pl.Series:
    """Make a column of nulls."""
    return pl.Series(name, [None], dtype=dtype).new_from_index(0, count)


def gather_rows(values: pl.Series, rows: pl.Series) -> pl.Series:
    """Gather a column at some rows; null where the row is null."""
    if values.is_empty():
        return make_nulls(values.name, len(rows), values.dtype)
    return values[rows.cast(pl.UInt32)]
