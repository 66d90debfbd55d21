"""Medians of numbers that are spread over many ranks: exact, though no rank sends more than a few of its numbers.

::

    round 1   each rank sorts its numbers into cells, and sends the ends of each and how many are in it
              the median of all lower ends <= the median of all numbers <= the median of all upper ends
    round 2   each rank sends its numbers between these two, and how many lie below
"""

from collections.abc import Sequence

import polars as pl

CELLS = 64
"""Cells of each rank's numbers: of many alike ranks, about a 30th of all numbers lie between the bounds."""


def make_cells(numbers: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sort a rank's numbers into cells.

    Args:
        numbers: ``number``, and what tells the set that each belongs to.
        keys: Columns that tell it.

    Returns:
        The keys; ``least`` and ``most`` of each cell, and ``count`` of its numbers.
    """
    place, of = pl.int_range(pl.len()).over(keys), pl.len().over(keys)
    ordered = numbers.sort("number").with_columns(cell=place * CELLS // of)
    return (
        ordered.group_by(*keys, "cell")
        .agg(least=pl.col("number").min(), most=pl.col("number").max(), count=pl.len().cast(pl.Int64))
        .drop("cell")
    )


def find_bounds(cells: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Find numbers between which the median of each set lies.

    Args:
        cells: Of :func:`make_cells`, of all ranks.
        keys: As there.

    Returns:
        The keys; ``least`` and ``most``, the bounds, and ``count`` of the set's numbers.
    """
    least, most = (_pick(cells.rename({end: "number"}), keys) for end in ("least", "most"))
    return least.select(*keys, "count", least="first").join(
        most.select(*keys, most="second"), on=keys, nulls_equal=True
    )


def select_between(numbers: pl.DataFrame, bounds: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Select a rank's numbers between the bounds of the medians.

    Args:
        numbers: As for :func:`make_cells`.
        bounds: Of :func:`find_bounds`.
        keys: As there.

    Returns:
        The keys; each ``number`` once, with its ``count``. All those below are counted as minus infinity.
    """
    number = pl.col("number")
    return (
        numbers.join(bounds.drop("count"), on=keys, nulls_equal=True)
        .filter(number <= pl.col("most"))
        .group_by(*keys, pl.when(number < pl.col("least")).then(float("-inf")).otherwise(number).alias("number"))
        .agg(count=pl.len().cast(pl.Int64))
    )


def compute_medians(between: pl.DataFrame, bounds: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Compute the medians, as polars computes them of all numbers at once.

    Args:
        between: Of :func:`select_between`, of all ranks.
        bounds: Of :func:`find_bounds`.
        keys: As there.

    Returns:
        The keys; ``median`` of each set, and ``count`` of its numbers.
    """
    totals = bounds.select(*keys, total="count")
    middle = _pick(between.join(totals, on=keys, nulls_equal=True), keys, pl.col("total").first())
    # The middle two of an even count, or the middle one twice: their mean as polars rounds it.
    both = pl.concat([middle.select(*keys, number=name) for name in ("first", "second")])
    medians = both.group_by(keys).agg(median=pl.col("number").median())
    return medians.join(bounds.select(*keys, "count"), on=keys, nulls_equal=True)


def _pick(counted: pl.DataFrame, keys: Sequence[str], total: pl.Expr | None = None) -> pl.DataFrame:
    """Pick the two numbers in the middle of each set, or the middle one twice.

    Args:
        counted: ``number`` and ``count``, how often it counts.
        keys: What tells the set.
        total: Numbers of the set; by default all those here.
    """
    running, number = pl.col("count").cum_sum(), pl.col("number")
    total = pl.col("count").sum() if total is None else total
    return (
        counted.sort("number")
        .group_by(keys)
        .agg(
            count=total,
            first=number.filter(running > (total - 1) // 2).first(),
            second=number.filter(running > total // 2).first(),
        )
    )
