"""What the model misses on the traces' GPU, of the kernels of all ranks: from a few numbers of each rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from predictors.transfer import STACK, StackErrors
from tracekit.fleet.exact_median import compute_medians, find_bounds, make_cells, select_between
from tracekit.prediction.part import OpenPart, PartOnTarget

BATCHES = 3
"""Of :meth:`KernelTimePredictor.tabulate_errors`: with the likely, the least and the most work."""
KEYS = ("batch", "calibrated", *STACK)


@dataclass(frozen=True, slots=True)
class ErrorCells:
    """A rank's errors in a few cells.

    Attributes:
        cells: Of :func:`tracekit.fleet.exact_median.make_cells`.
        has_calibrated: For each batch, whether calibrations say something of it on the traces' GPU and on the target.
    """

    cells: pl.DataFrame
    has_calibrated: tuple[tuple[bool, bool], ...]


@dataclass(frozen=True, slots=True)
class BoundErrors:
    """A rank whose errors between bounds are asked for.

    Attributes:
        rank: The rank on a target.
        bounds: Of :func:`tracekit.fleet.exact_median.find_bounds`.
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
