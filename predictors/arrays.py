"""Types of the arrays that hold table columns."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Frameworks = npt.NDArray[np.object_] | None
Columns = Mapping[str, Floats]
"""Columns of a table by name."""


def find_nulls(column: pl.Series) -> Bools:
    """Return which rows of a column are null; without a query where all are or none is."""
    nulls = column.null_count()
    if nulls in (0, column.len()):
        return np.full(column.len(), nulls > 0)
    missing: Bools = column.is_null().to_numpy()
    return missing


def is_true(column: pl.Series) -> Bools:
    """Return which rows of a column of booleans are true; null is false."""
    return np.asarray(column.cast(pl.Float64).to_numpy() == 1.0)
