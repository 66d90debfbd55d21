"""Nested spans."""

import polars as pl


def select_outermost(spans: pl.DataFrame, *apart: str) -> pl.DataFrame:
    """Select the spans that lie within no other, in order of start.

    Args:
        spans: With ``ts_ns`` and ``dur_ns``.
        apart: Columns, such as those of a thread; spans that differ in them are not nested.
    """
    ended = (pl.col("ts_ns") + pl.col("dur_ns")).cum_max().shift()
    ended = ended.over(*apart) if apart else ended
    return spans.sort("ts_ns", -pl.col("dur_ns")).filter((pl.col("ts_ns") >= ended).fill_null(value=True))
