"""Shares of time."""

import polars as pl


def share(table: pl.DataFrame, time: str, rows: pl.Expr) -> float:
    """Percent of the column ``time`` that falls on ``rows``; 0 if there is no time at all."""
    part = pl.col(time).filter(rows).sum() / pl.col(time).sum()
    return float(table.select(100 * part.fill_nan(0.0)).item())
