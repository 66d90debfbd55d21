"""Override columns on some rows."""

from collections.abc import Mapping

import polars as pl


def override_columns(rows: pl.Expr, values: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    """Build the columns that ``values`` names: with these values on ``rows``, unchanged on all others."""
    return [pl.when(rows).then(value).otherwise(column).alias(column) for column, value in values.items()]
