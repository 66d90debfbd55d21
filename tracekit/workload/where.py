"""Columns with other values on some rows."""

from collections.abc import Mapping

import polars as pl


def where(rows: pl.Expr, values: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    """The columns that ``values`` names, with these on some rows and as they are on all others."""
    return [pl.when(rows).then(value).otherwise(column).alias(column) for column, value in values.items()]
