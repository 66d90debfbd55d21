"""Spans within each other."""

import polars as pl


def outermost(spans: pl.DataFrame, *apart: str) -> pl.DataFrame:
    """The spans that lie within no other, in order of start.

    Args:
        spans: With ``ts_ns`` and ``dur_ns``.
        apart: Columns, such as those of a thread, whose spans don't lie within each other if they differ.
    """
    ended = (pl.col("ts_ns") + pl.col("dur_ns")).cum_max().shift()
    ended = ended.over(*apart) if apart else ended
    return spans.sort("ts_ns", -pl.col("dur_ns")).filter((pl.col("ts_ns") >= ended).fill_null(value=True))
