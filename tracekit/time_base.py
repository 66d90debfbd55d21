"""The base from which a trace counts its times (``baseTimeNanoseconds``)."""

import polars as pl

MAX_TIME_NS = 2**63 - 1
MIN_BASE_NS = 10**17
"""Of a base below it, three years after 1970, nothing tells whether times already have it."""


def find_absolute(times_ns: pl.Series, base_ns: int) -> pl.Series:
    """Find the times that already count from 1970, beside a base that others count from.

    A trace lasts less than half of the time from 1970 to its base.
    """
    return times_ns >= (base_ns // 2 if base_ns >= MIN_BASE_NS else MAX_TIME_NS)


def add_base(times_ns: pl.Series, base_ns: int) -> pl.Series:
    """Add the base to the times that lack it."""
    return times_ns.zip_with(find_absolute(times_ns, base_ns), times_ns + base_ns)
