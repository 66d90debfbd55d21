"""Flat arrays, and columns of names encoded as integers, so that each distinct name is processed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class CategoricalColumn:
    """A column of names.

    Attributes:
        categories: Distinct names. None is among them if any row has no name.
        codes: Index into ``categories`` of each row.
    """

    categories: tuple[str | None, ...]
    codes: Ints

    @classmethod
    def from_series(cls, column: pl.Series) -> CategoricalColumn:
        """A column of strings."""
        return encode_names(column.to_frame())[column.name]

    def take(self, rows: Ints) -> CategoricalColumn:
        """Some rows, and the categories that they have."""
        codes = self.codes[rows]
        used = np.flatnonzero(np.bincount(codes, minlength=len(self.categories)))
        return CategoricalColumn(tuple(self.categories[code] for code in used), np.searchsorted(used, codes))

    def map(self, value: Callable[[str | None], Any]) -> npt.NDArray[Any]:
        """What a function makes of each row's name."""
        return np.array([value(name) for name in self.categories])[self.codes]

    def is_in(self, *names: str | None) -> Bools:
        """Which rows have one of some names."""
        return self.map(lambda name: name in names)


def encode_names(table: pl.DataFrame) -> dict[str, CategoricalColumn]:
    """Encode the columns of a table of strings, with two queries for all of them; none where each has one name."""
    encoded, varied = {}, []
    for column in table:
        nulls = column.null_count()
        if nulls == column.len() or (not nulls and (column == column[0]).all()):
            name = column[0] if column.len() else None
            encoded[column.name] = CategoricalColumn((name,), np.zeros(column.len(), dtype=np.intp))
        else:
            varied.append(column.name)
    if not varied:
        return encoded
    found = table.select(pl.col(varied).unique().drop_nulls().implode())
    codes = table.select(pl.col(name).cast(pl.Enum(found[name][0])).to_physical() for name in varied)
    for name in varied:
        names = (*found[name][0], *([None] if table[name].null_count() else []))
        code = np.nan_to_num(codes[name].to_numpy(), nan=len(names) - 1)  # null comes last
        encoded[name] = CategoricalColumn(names, code.astype(np.intp))
    return encoded
