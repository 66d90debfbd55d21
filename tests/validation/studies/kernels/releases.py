"""Kernels of serving engines by what is told of them: library, engine, release, and releases that the fit lacks.

From the scores of a fit: shapes, and in the last rows releases, that it had not seen, over 20 us, all GPUs together.
*Stated* is the usual half-width of the 90 % interval, as a factor, *needed* the one that would have held 90 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from predictors.result import NEW_SOFTWARE
from predictors.training.__main__ import SCORED_TABLE
from predictors.training.report import LAW_TITLES
from predictors.training.views import VIEWS, get_spread_column, get_time_column
from predictors.weights_file import load_weights
from tests.validation.study import FIT, find_input, format_table

INPUTS = (FIT,)
MIN_SHOWN_US = 20.0
MIN_ROWS = 20
HEADINGS = ("law", "told", "kernels", "median", "P90", "inside", "stated", "needed", "worst GPU inside")


def run() -> str:
    """Return a row for each law and what is told of its kernels."""
    folder = find_input(FIT)
    scored = pl.read_parquet(folder / SCORED_TABLE).filter(pl.col("engine").is_not_null())
    weights = load_weights(folder)
    laws = [law for law in LAW_TITLES if law in scored["law"].unique() and law in weights.intervals]
    rows = (
        row
        for law in laws
        for row in list_rows(scored.filter(law=law), weights.intervals[law], weights.centres.get(law, {}))
    )
    return "# Kernels by what is told of their software\n\n" + format_table(HEADINGS, rows)


def list_rows(scored: pl.DataFrame, widths: dict[str, float], centres: dict[str, float]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a law.

    Args:
        scored: From ``evaluate.cross_validate``, of one law.
        widths: Of the law's intervals.
        centres: Their middles.
    """
    base = scored.filter(pl.col("situation") == "base")
    yield from format_row("all", base, "model_us", pl.lit(0.0), widths["base"], centres.get("base", 0.0))
    for view in VIEWS:
        extra = math.hypot(widths["base"], widths.get(view, 0.0))
        centre = centres.get(view, 0.0)
        yield from format_row(view, base, get_time_column(view), pl.col(get_spread_column(view)), extra, centre)
    for situation in NEW_SOFTWARE:
        rows = scored.filter(pl.col("situation") == situation)
        extra = math.hypot(widths["base"], widths.get(situation, 0.0))
        ends = extra, centres.get(situation, 0.0)
        yield from format_row(situation, rows, "model_us", pl.col("model_spread"), *ends)
        yield from format_row(
            f"{situation}: engine alone", rows, get_time_column("engine"), pl.col("engine_spread"), *ends
        )


def format_row(
    told: str, rows: pl.DataFrame, column: str, spread: pl.Expr, width: float, centre: float
) -> Iterator[tuple[str, ...]]:
    """Yield a row, or none where too few kernels tell so much.

    Args:
        told: What is told.
        rows: Scored kernels.
        column: Predicted times.
        spread: How far the kernels that it may be of are apart, as a logarithm.
        width: Half-width without it, likewise.
        centre: How far the interval's middle is above the predicted time, likewise.
    """
    error = ((pl.col("latency_us") / pl.col(column)).log() - centre).abs()
    known = rows.filter(pl.col("latency_us") > MIN_SHOWN_US).drop_nulls(column)
    found = known.select("law", "gpu", error=error, width=(spread.fill_null(0.0) ** 2 + width**2).sqrt())
    if found.height < MIN_ROWS:
        return
    off = (pl.col(column) / pl.col("latency_us") - 1).abs() * 100
    percent = known.select(off.median().alias("median"), p90=off.quantile(0.9))
    inside = pl.col("error") <= pl.col("width")
    worst = found.group_by("gpu").agg(inside=100 * inside.mean(), n=pl.len()).filter(pl.col("n") >= MIN_ROWS)
    lowest = worst.sort("inside").head(1)
    yield (
        LAW_TITLES.get(found["law"][0], found["law"][0]),
        told,
        f"{found.height:,}",
        f"{percent['median'][0]:.1f}",
        f"{percent['p90'][0]:.0f}",
        f"{100 * float(found.select(inside.mean()).item()):.0f} %",
        f"{math.exp(float(found.select(pl.col('width').median()).item())):.2f}",
        f"{math.exp(float(found.select(pl.col('error').quantile(0.9)).item())):.2f}",
        f"{lowest['inside'][0]:.0f} % {lowest['gpu'][0]}" if lowest.height else "–",
    )
