"""Percentages of time."""

import polars as pl


def compute_time_share(table: pl.DataFrame, time: str, rows: pl.Expr) -> float:
    """Compute the percentage of the column ``time`` that falls on ``rows``; 0 if the total is 0."""
    part = pl.col(time).filter(rows).sum() / pl.col(time).sum()
    return float(table.select(100 * part.fill_nan(0.0)).item()) if table.height else 0.0


def compute_time_shares(table: pl.DataFrame, time: str, *parts: pl.Expr) -> list[float]:
    """Compute the percentages of the column ``time`` that fall on ``parts``, which partition the rows.

    They add up to 100 even without time: then all rows count alike, and an empty table counts as the last part.
    """
    if table.is_empty():
        return [*(0.0 for _ in parts[1:]), 100.0]
    weight = pl.col(time) if table[time].sum() else pl.lit(1)
    sums = (pl.when(part).then(weight).otherwise(0).sum().alias(str(number)) for number, part in enumerate(parts))
    found = map(float, table.select(sums).row(0))
    total = float(table[time].sum() or table.height)
    return [100 * one / total for one in found]
