"""Reduce many intervals to few blocks: what takes most of each part of the time, for a picture of it.

Example: of the intervals a from 0 to 3 and b from 3 to 4, two parts of the time from 0 to 8 show a with all of the
part, of which the first half is b's by a quarter: one block of a, one part long, four quarters busy.
"""

import polars as pl

from tracekit.arrays import IN_ORDER

MIN_BUSY_FRACTION = 0.02
"""Parts of the time that are less busy stay empty."""
QUARTERS = 4


def rasterize(intervals: pl.DataFrame, begin_ns: int, end_ns: int, columns: int) -> pl.DataFrame:
    """Return blocks of what takes most of each of some equal parts of the time; equal neighbours are one block.

    Args:
        intervals: ``lane``, ``key`` (what it is), ``begin_ns``, ``end_ns``; those of a lane don't overlap much.
        begin_ns: Start of the time.
        end_ns: Its end.
        columns: Number of parts.

    Returns:
        ``lane``, ``begin`` (first part), ``length`` (parts), ``quarters`` (how much of them is busy, 1 to 4), ``key``;
        by lane and time.
    """
    width_ns = max(end_ns - begin_ns, 1) / columns
    inside = intervals.lazy().filter(pl.col("end_ns") > begin_ns, pl.col("begin_ns") < end_ns)
    placed = inside.select(
        "lane",
        "key",
        begin=((pl.col("begin_ns") - begin_ns) / width_ns).clip(0, columns),
        end=((pl.col("end_ns") - begin_ns) / width_ns).clip(0, columns),
    )
    parts = placed.with_columns(
        column=pl.int_ranges(pl.col("begin").floor().cast(pl.Int64), pl.col("end").ceil().cast(pl.Int64))
    ).explode("column", empty_as_null=True)
    column = pl.col("column")
    covered = parts.drop_nulls("column").with_columns(
        busy=pl.min_horizontal("end", column + 1) - pl.max_horizontal("begin", column)
    )
    each = covered.group_by("lane", "column", "key").agg(pl.col("busy").sum())
    most = (
        each.sort("busy", "key", descending=[True, False])
        .group_by("lane", "column", maintain_order=True)
        .agg(pl.col("key").first(), pl.col("busy").sum())
        .filter(pl.col("busy") >= MIN_BUSY_FRACTION)
        .with_columns(quarters=(QUARTERS * pl.col("busy")).ceil().clip(1, QUARTERS).cast(pl.Int64))
        .sort("lane", "column")
    )
    alike = pl.struct("lane", "key", "quarters")
    is_next = (alike == alike.shift()) & (column == column.shift() + 1)
    return (
        most.group_by(block=(~is_next.fill_null(False)).cum_sum(), maintain_order=True)
        .agg(pl.col("lane", "key", "quarters").first(), begin=column.first(), length=pl.len().cast(pl.Int64))
        .select("lane", "begin", "length", "quarters", "key")
        .collect(engine=IN_ORDER)
    )
