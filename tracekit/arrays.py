"""Types of the flat arrays, and functions on them.

A query of polars costs more than all else that is done with a few rows, so columns are read and made without one.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.datatypes import DataType, DataTypeClass

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

IN_ORDER: Any = "in-memory" if tuple(map(int, pl.__version__.split(".")[:2])) >= (1, 26) else "cpu"
"""Engine of polars whose sums don't depend on threads."""
NO_NUMBER = np.iinfo(np.int64).min
"""Stands for a number that wasn't recorded, such as that of a process or thread."""
MAX_NUMBER = 1 << 31
"""Two numbers below it make one number of 62 bits together."""
MOST_COMPARED = 8
"""Up to so many values are looked for one after the other, which takes less time than a query."""


def compute_least_from(values: Ints) -> Ints:
    """Return the least value from each place on: ``[3, 1, 2]`` gives ``[1, 1, 2]``."""
    least: Ints = np.minimum.accumulate(values[::-1])[::-1]
    return least


def fill_nulls(values: pl.Series, number: int) -> Ints:
    """Return a column of integers with a number in place of nulls."""
    filled: Ints = (values.set(pl.Series(find_nulls(values)), number) if values.null_count() else values).to_numpy()
    return filled


def find_nulls(values: pl.Series) -> Bools:
    """Return which values of a column are null; of numbers without a query."""
    nulls = values.null_count()
    if nulls in (0, len(values)):
        return np.full(len(values), nulls > 0)
    missing: Bools = np.isnan(values.to_numpy()) if values.dtype.is_numeric() else values.is_null().to_numpy()
    return missing


def fill_false(mask: pl.Series) -> Bools:
    """Return a column of truth values with false in place of nulls."""
    true = pl.Series([True]).new_from_index(0, len(mask))
    filled: Bools = true.zip_with(mask, ~true).to_numpy()
    return filled


def compute_medians(values: Ints, group: Ints, groups: int) -> tuple[Floats, Ints]:
    """Compute the median of each group's values, NaN without one, and count them.

    Args:
        values: The values.
        group: Number of the group of each.
        groups: How many groups there are.
    """
    count = np.bincount(group, minlength=groups)
    first = np.cumsum(count) - count
    ordered = np.append(values[np.lexsort((values, group))], 0)
    low, high = (np.where(count > 0, first + half, values.size) for half in ((count - 1) // 2, count // 2))
    return np.where(count > 0, (ordered[low] + ordered[high]) / 2, np.nan), count


def number_pairs(tables: Sequence[pl.DataFrame], first: str, second: str) -> list[Ints]:
    """Number each pair of values of two columns over all tables, in the order of the values; nulls are the least.

    Args:
        tables: Tables with both columns, of integers.
        first: Name of the column that counts first in the order.
        second: Name of the other one.
    """
    one, other = (
        _number_values(np.concatenate([fill_nulls(table[name], NO_NUMBER) for table in tables]))
        for name in (first, second)
    )
    return np.split(one * (other.max(initial=0) + 1) + other, np.cumsum([table.height for table in tables])[:-1])


def _number_values(values: Ints) -> Ints:
    """Number integers from 0 in their order; those near each other need no sorting."""
    if not values.size:
        return values
    least = int(values.min())
    if int(values.max()) - least < MAX_NUMBER:
        return values - least
    numbers: Ints = np.unique(values, return_inverse=True)[1]
    return numbers


@dataclass(frozen=True, slots=True)
class DistinctNames:
    """A column of names, of which each different one is looked at once.

    Attributes:
        names: The different names.
        number: Number of each row's name among them.
    """

    names: list[str]
    number: Ints

    @classmethod
    def from_column(cls, column: pl.Series) -> Self:
        """Number the names of a column without nulls."""
        if column.is_empty():
            return cls([], np.empty(0, np.int64))
        code = column.cast(pl.Categorical).to_physical().to_numpy().astype(np.int64)
        row = np.full(code.max() + 1, NO_NUMBER)
        row[code] = np.arange(code.size)
        number = np.cumsum(row != NO_NUMBER) - 1
        return cls(column[row[row != NO_NUMBER]].to_list(), number[code])

    def match(self, pattern: str) -> Bools:
        """Return which rows' names match a regular expression anywhere."""
        matching: Bools = np.array([re.search(pattern, name) is not None for name in self.names], np.bool_)[self.number]
        return matching


def list_distinct(values: pl.Series) -> list[Any]:
    """List the distinct values of a column in no order, without null."""
    return [value for value in values.value_counts()[values.name] if value is not None] if values.count() else []


def list_used_rows(rows: Ints) -> Ints:
    """List the distinct rows of a table among some, in order; negative ones are none.

    numpy's ``unique`` hashes integers since 2.3, which takes 15 times as long where most are distinct.
    """
    return np.flatnonzero(np.bincount(rows[rows >= 0]))


def has_name(table: pl.DataFrame, pattern: str, column: str = "name") -> bool:
    """Return whether a regular expression matches any name of a column; each different one is looked at once."""
    return any(re.search(pattern, name) for name in list_distinct(table[column]))


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


def mark_equal(values: pl.Series, wanted: str | int | bool) -> Bools:
    """Mark the values that are equal to one; nulls are not."""
    return np.asarray((values == wanted).cast(pl.Float64).to_numpy() == 1.0)


def find_matches(values: pl.Series, pattern: str) -> Ints:
    """Return the places of the texts that a regular expression finds; it searches each distinct text once."""
    return select_any(values, [text for text in list_distinct(values) if re.search(pattern, text)])


def select_any(values: pl.Series, wanted: Iterable[str | int]) -> Ints:
    """Return the places of the values that are among some; nulls are not."""
    return np.flatnonzero(mark_any(values, wanted))


def mark_any(values: pl.Series, wanted: Iterable[str | int]) -> Bools:
    """Mark the values that are among some; nulls are not."""
    options = list(wanted)
    if len(options) > MOST_COMPARED:
        return np.asarray(values.is_in(options).fill_null(False).to_numpy(), dtype=np.bool_)
    marked = np.zeros(len(values), dtype=np.bool_)
    for one in options:
        marked |= mark_equal(values, one)
    return marked


def coalesce(values: pl.Series, others: pl.Series) -> pl.Series:
    """Return a column with another one in place of its nulls."""
    return values.zip_with(pl.Series(~find_nulls(values)), others) if values.null_count() else values


def select_table(table: pl.DataFrame, rows: Bools) -> pl.DataFrame:
    """Return the rows of a table that a mask selects."""
    return table[np.flatnonzero(rows)]


def group_rows(*columns: pl.Series) -> tuple[Ints, Ints]:
    """Group the rows that are equal in some columns of integers; nulls are equal to each other.

    Example: rows (7, 1), (9, 1), (7, 2), (7, 1) have the groups 0, 2, 1, 0, which begin in the rows 0, 2, 1.

    Returns:
        The number of each row's group, in the order of the values, and the first row of each group.
    """
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        own = _number_values(fill_nulls(column, NO_NUMBER))
        code = _number_values(code * (own.max(initial=0) + 1) + own)
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    return group, first
