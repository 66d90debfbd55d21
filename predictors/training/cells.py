"""Tell how well a fit holds its own cells: the kernels of one law on one GPU that one release of an engine ran.

A GPU's kernels together may lie inside their intervals while those of one release all lie outside.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from predictors.kernel_identity import format_release
from predictors.result import compute_centre, compute_half_width, get_cell_key, get_width_key
from predictors.weights_file import Weights, load_hardware

CELL_COLUMNS = ("law", "gpu", "engine", "release")
CARD_COLUMNS = ("fitted", "kernels", "median", "p90", "inside")
COVERAGE_COLUMNS = ("gpus", "kernels", "below", "above", "inside", "stated", "needed")
"""Of a law and a situation: GPUs and kernels scored; percentages of the kernels below, above and inside; and how many
times the low end the high one is, and would have to be for 90 % of all and 80 % of each GPU's; means over the GPUs."""
MIN_CELL_KERNELS = 30
"""Kernels of held-out shapes with which a cell tells how many are inside."""
MIN_COVERAGE_GPUS = 4
"""GPUs of which each tells how well an interval made of the others holds the next one."""
MIN_INSIDE_PERCENT = 80.0
"""Of a 90 % interval; a cell of 30 kernels with fewer inside is off by more than chance allows in one of 15."""


def summarise_cells(rows: pl.DataFrame, weights: Weights) -> pl.DataFrame:
    """Errors of the held-out shapes of each cell, and how many are inside their interval.

    Args:
        rows: From ``evaluate.cross_validate``.
        weights: Weights with the widths of intervals.

    Returns:
        One row per cell: `CELL_COLUMNS`, ``fitted`` (measurements), ``kernels`` (of held-out shapes), ``median`` and
        ``p90`` of |error|, and ``inside``, all three in percent.
    """
    base = rows.filter(pl.col("situation") == "base")
    if "fitted" not in base.columns:
        base = base.with_columns(fitted=pl.lit(None, pl.Int64))
    log_error = (pl.col("latency_us") / pl.col("model_us")).log()
    error = (pl.col("model_us") / pl.col("latency_us") - 1).abs() * 100
    widths = base.select(CELL_COLUMNS).unique(maintain_order=True)
    cells = [find_cell_interval(weights, *cell) for cell in widths.iter_rows()]
    intervals = pl.DataFrame(cells, schema={"width": pl.Float64, "centre": pl.Float64}, orient="row")
    known = base.join(widths.hstack(intervals), on=CELL_COLUMNS, nulls_equal=True)
    return (
        known.group_by(CELL_COLUMNS)
        .agg(
            pl.col("fitted").max(),
            kernels=pl.len(),
            median=error.median(),
            p90=error.quantile(0.9),
            inside=((log_error - pl.col("centre")).abs() <= pl.col("width")).mean() * 100,
        )
        .sort(CELL_COLUMNS)
    )


def find_cell_interval(
    weights: Weights, law: str, gpu: str, engine: str | None, release: float | None
) -> tuple[float, float]:
    """Half-width and centre, as logarithms, of the interval of a cell's kernels where all is told of their software."""
    hardware = load_hardware(gpu)
    of_law = compute_half_width(law, hardware, weights), compute_centre(law, hardware, weights)
    if engine is None or release is None:
        return of_law
    key, cell = get_width_key(law, hardware.gpu.vendor), get_cell_key(gpu, engine, release)
    own = weights.intervals.get(key, {}).get(cell, 0.0)
    return (own, weights.centres.get(key, {}).get(cell, 0.0)) if own >= of_law[0] else of_law


def describe_cells(cells: pl.DataFrame) -> dict[str, list[float]]:
    """Return the cells of one law as an entry of its card: 'gpu, engine version' -> its `CARD_COLUMNS`."""
    rounded = cells.with_columns(
        pl.col("median", "p90").round(1), pl.col("inside").round(0).cast(pl.Int64), pl.col("fitted").fill_null(0)
    )
    names = [_name_cell(*cell) for cell in cells.select(CELL_COLUMNS[1:]).iter_rows()]
    return _describe_rows(names, rounded.select(CARD_COLUMNS))


def describe_coverage(coverage: pl.DataFrame) -> dict[str, list[float]]:
    """Return the coverage of one law as an entry of its card: situation, by vendor -> its `COVERAGE_COLUMNS`.

    Args:
        coverage: From ``widths.compute_coverage``.
    """
    where = pl.concat_str("situation", pl.col("law").str.extract(r"( on \w+)$").fill_null(""))
    means = coverage.group_by(where=where).agg(
        pl.len().alias("gpus"),
        pl.col("kernels").sum(),
        pl.col("below", "above", "inside").mean().round(1),
        stated=pl.col("width").mean().exp().round(2),
        needed=pl.col("needed").mean().exp().round(2),
    )
    ordered = means.sort("where")
    return _describe_rows(ordered["where"].to_list(), ordered.select(COVERAGE_COLUMNS))


def _describe_rows(names: Sequence[str], figures: pl.DataFrame) -> dict[str, list[float]]:
    """Return each row's figures by its name, whole numbers without a fraction."""
    rows = figures.cast(pl.Float64).iter_rows()
    return {name: [int(one) if one == int(one) else one for one in of] for name, of in zip(names, rows, strict=True)}


def read_coverage(card: Path) -> pl.DataFrame:
    """Read the coverage of a card: ``law``, ``where`` (the situation, by vendor) and the `COVERAGE_COLUMNS`."""
    return _read_rows(card, "coverage", "where", COVERAGE_COLUMNS)


def find_miscovered(
    coverage: pl.DataFrame,
    min_inside: float = 85.0,
    max_inside: float = 95.0,
    max_factor: float = 1.6,
    min_gpus: int = MIN_COVERAGE_GPUS,
) -> list[str]:
    """Name the laws and situations whose intervals hold too few kernels, or too many and are too wide, one line each.

    Args:
        coverage: From :func:`read_coverage`.
        min_inside: Percentage that must be inside; of either side half as many as the others may be outside.
        max_inside: Percentage that may be inside of an interval that is wider than needed.
        max_factor: How many times as wide as needed, high over low, such an interval may be.
        min_gpus: Of fewer GPUs an interval made of the others tells nothing.
    """
    tested = coverage.filter(pl.col("gpus") >= min_gpus)
    too_few = (pl.col("inside") < min_inside) | (pl.max_horizontal("below", "above") > 100 - min_inside)
    too_wide = (pl.col("inside") > max_inside) & (pl.col("stated") > max_factor * pl.col("needed"))
    return [
        f"{row['law']}, {row['where']}: {row['below']:.1f} % below, {row['above']:.1f} % above, high/low "
        f"{row['stated']:.2f} for {row['needed']:.2f}"
        for row in tested.filter(too_few | too_wide).sort("law", "where").iter_rows(named=True)
    ]


def _name_cell(gpu: str, engine: str | None, release: float | None) -> str:
    software = " ".join([engine or "", "" if release is None else format_release(release)]).strip()
    return f"{gpu}, {software}".removesuffix(", ")


def read_cells(card: Path) -> pl.DataFrame:
    """Read the cells of a card: ``law``, ``cell`` ('gpu, engine version') and the `CARD_COLUMNS`."""
    return _read_rows(card, "cells", "cell", CARD_COLUMNS)


def _read_rows(card: Path, entry: str, name: str, columns: Sequence[str]) -> pl.DataFrame:
    """Read an entry of all laws as :func:`_describe_rows` wrote it, with the columns ``law`` and ``name``."""
    laws = tomllib.loads(card.read_text(encoding="utf-8"))["laws"]
    found = [(law, named, *of) for law, of_law in laws.items() for named, of in of_law.get(entry, {}).items()]
    schema = {"law": pl.String, name: pl.String, **dict.fromkeys(columns, pl.Float64)}
    return pl.DataFrame(found, schema=schema, orient="row")


def find_misfits(
    table: pl.DataFrame,
    names: Sequence[str] = ("law", "cell"),
    least: float = MIN_INSIDE_PERCENT,
    most: float = math.inf,
    min_kernels: int = MIN_CELL_KERNELS,
) -> list[str]:
    """Name the rows of a table of coverage that are outside of what is wanted, one line each.

    Args:
        table: With columns ``kernels`` and ``inside``, in percent.
        names: Columns that name a row.
        least: Percentage that must be inside.
        most: Percentage that may be inside.
        min_kernels: Rows with fewer kernels tell nothing.
    """
    tested = table.filter(pl.col("kernels") >= min_kernels)
    misfits = tested.filter((pl.col("inside") < least) | (pl.col("inside") > most)).sort("inside")
    return [
        f"{', '.join(str(row[name]) for name in names if row[name] is not None)}: "
        f"{row['inside']:.0f} % of {row['kernels']:.0f} kernels inside"
        for row in misfits.to_dicts()
    ]
