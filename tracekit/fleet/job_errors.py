"""What the model misses on the traces' GPU, of the kernels of all ranks: from a few numbers of each rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from predictors.transfer import STACK, StackErrors
from tracekit.prediction.part import OpenPart, PartOnTarget

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


BATCHES = 3
"""Of :meth:`KernelTimePredictor.tabulate_errors`: with the likely, the least and the most work."""
KEYS = ("batch", "calibrated", *STACK)


@dataclass(frozen=True, slots=True)
class ErrorCells:
    """A rank's errors in a few cells.

    Attributes:
        cells: Of :func:`tracekit.fleet.job_errors.make_cells`.
        has_calibrated: For each batch, whether calibrations say something of it on the traces' GPU and on the target.
    """

    cells: pl.DataFrame
    has_calibrated: tuple[tuple[bool, bool], ...]


@dataclass(frozen=True, slots=True)
class BoundErrors:
    """A rank whose errors between bounds are asked for.

    Attributes:
        rank: The rank on a target.
        bounds: Of :func:`tracekit.fleet.job_errors.find_bounds`.
    """

    rank: PartOnTarget
    bounds: pl.DataFrame


def sort_errors(item: PartOnTarget) -> ErrorCells:
    """Sort a rank's errors into cells, and keep them beside its tables."""
    opened = item.open()
    errors, has_calibrated = _tabulate(opened)
    opened.part.store.keep(_name_table(item), lambda: errors)
    return ErrorCells(make_cells(errors, KEYS), has_calibrated)


def select_errors(item: BoundErrors) -> pl.DataFrame:
    """Select a rank's errors between bounds."""
    opened = item.rank.open()
    errors = opened.part.store.keep(_name_table(item.rank), lambda: _tabulate(opened)[0])
    return select_between(errors, item.bounds, KEYS)


def merge_errors(cells: Sequence[ErrorCells], bounds: pl.DataFrame, between: pl.DataFrame) -> tuple[StackErrors, ...]:
    """Return what the ranks' errors have in common, for each batch.

    Args:
        cells: Of all ranks.
        bounds: Of their cells.
        between: What all ranks selected between them.
    """
    medians = compute_medians(between, bounds, KEYS)
    merged = []
    for batch in range(BATCHES):
        here, there = (any(one.has_calibrated[batch][which] for one in cells) for which in range(2))
        of_batch = medians.filter(batch=batch, calibrated=here and there)
        merged.append(StackErrors(of_batch.select(*STACK, "median", "count"), is_calibrated=here and there))
    return tuple(merged)


def bound_errors(cells: Sequence[ErrorCells]) -> pl.DataFrame:
    """Return numbers between which the medians of the ranks' errors lie."""
    return find_bounds(pl.concat(one.cells for one in cells), KEYS)


def _name_table(item: PartOnTarget) -> str:
    assert item.target is not None
    return f"errors-for-{item.target.name}"


def _tabulate(opened: OpenPart) -> tuple[pl.DataFrame, tuple[tuple[bool, bool], ...]]:
    """Tabulate a rank's errors, and for each batch whether calibrations say something of it here and there."""
    assert opened.kernels is not None
    target = opened.kernels.target
    found = opened.kernels.predictor.tabulate_errors(target.gpu, target.calibrations)
    tables = [
        table.rename({"error": "number"}).select(
            pl.lit(batch).alias("batch"), pl.lit(calibrated).alias("calibrated"), pl.all()
        )
        for batch, one in enumerate(found)
        for calibrated, table in ((False, one.table), (True, one.calibrated))
        if table is not None
    ]
    return pl.concat(tables), tuple(one.has_calibrated for one in found)
