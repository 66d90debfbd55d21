"""The base from which a trace counts its times (``baseTimeNanoseconds``)."""

import polars as pl

MIN_BASE_NS = 10**17
"""Of a base below it, three years after 1970, nothing tells whether times already have it."""


def is_absolute(base_ns: int) -> pl.Expr:
    """Return whether a time already counts from 1970, beside a base that others count from.

    A trace lasts less than half of the time from 1970 to its base.
    """
    return pl.lit(base_ns >= MIN_BASE_NS) & (pl.col("ts_ns") >= base_ns // 2)


def add_base(base_ns: int) -> pl.Expr:
    """Add the base to the times that lack it."""
    return pl.when(is_absolute(base_ns)).then("ts_ns").otherwise(pl.col("ts_ns") + base_ns).alias("ts_ns")
