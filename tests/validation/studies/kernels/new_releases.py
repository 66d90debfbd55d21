"""Releases of serving engines that the weights were not fitted to, from a checkout of aiconfigurator.

Each kernel is predicted four times: with library, engine and release, without the library, with the engine alone, and
without a name. *Stated* is the usual half-width of the 90 % interval, as a factor, *needed* the one that would have
held 90 %. Kernels over 20 us, at most forty of each GPU, library, engine and release; disturbed runs and
impossible times are left out as in the fit, and products are without the quantising of their input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from predictors import predict
from predictors.columns import prepare_kernels
from predictors.kernel_identity import IDENTITY_COLUMNS
from predictors.quantising import find_quantised_input
from predictors.training.datasets import load_datasets
from predictors.training.disturbed import drop_disturbed
from predictors.training.fit import hash_shape
from predictors.training.physics import find_impossible
from predictors.training.report import LAW_TITLES
from predictors.weights_file import Weights, load_hardware, load_weights
from tests.validation.study import AICONFIGURATOR, find_input, format_table

INPUTS = (AICONFIGURATOR,)
ROWS = 40
MIN_SHOWN_US = 20.0
NO_NAME, NO_RELEASE = pl.lit(None, pl.String), pl.lit(None, pl.Float64)
TOLD: dict[str, dict[str, pl.Expr]] = {
    "all": {},
    "engine and release": {"framework": pl.col("engine")},
    "engine": {"framework": pl.col("engine"), "release": NO_RELEASE},
    "nothing": {"framework": NO_NAME, "engine": NO_NAME, "release": NO_RELEASE},
}
"""What is told -> the columns that then say something else."""
HEADINGS = ("law", "told", "kernels", "median", "P90", "inside", "stated", "needed", "worst GPU inside")


def run() -> str:
    """Return a row for each law and what is told of its kernels."""
    rows = select_new_kernels(load_datasets(find_input(AICONFIGURATOR)), load_weights())
    scored = pl.concat(predict_as_told(rows))
    laws = [law for law in LAW_TITLES if law in scored["law"].unique()]
    parts = (scored.filter(law=law, told=told) for law in laws for told in TOLD)
    title = "# Kernels of releases that the weights were not fitted to\n\n"
    return title + format_table(HEADINGS, [format_row(part) for part in parts if part.height])


def select_new_kernels(rows: pl.DataFrame, weights: Weights) -> pl.DataFrame:
    """Return a sample of the measured kernels whose engine and release their law and GPU were not fitted to.

    Args:
        rows: From ``datasets.load_datasets``.
        weights: The weights.
    """
    fitted = [
        (law, gpu, key.split("/")[1], release)
        for law, constants in weights.laws.items()
        for gpu, kernels in constants.releases.items()
        for key, releases in kernels.items()
        for release in releases
    ]
    known = pl.DataFrame(
        fitted, schema={"law": pl.String, "gpu": pl.String, "engine": pl.String, "release": pl.Float64}, orient="row"
    )
    prepared = prepare_kernels(rows).with_columns(shape=hash_shape())
    rows = rows.hstack(prepared.select("law", "shape", "work_flops"))
    rows = drop_disturbed(rows.filter(is_possible(rows, prepared), pl.col("release").is_not_null()))
    rows = rows.drop("shape", "work_flops")
    new = rows.filter(pl.col("law").is_not_null()).join(known, on=known.columns, how="anti")
    order = pl.int_range(pl.len()).shuffle(seed=0).over("law", "gpu", *IDENTITY_COLUMNS)
    return new.filter(pl.col("latency_us") > MIN_SHOWN_US).filter(order < ROWS)


def is_possible(rows: pl.DataFrame, prepared: pl.DataFrame) -> pl.Series:
    """Return which measured kernels aren't faster than the peaks of their GPU."""
    table = prepared.hstack(rows.select("gpu", "latency_us")).with_row_index("row")
    parts = table.drop_nulls("law").group_by("law", "gpu")
    beyond = [
        part["row"].filter(pl.Series(find_impossible(str(law), part, load_hardware(str(gpu)))))
        for (law, gpu), part in parts
    ]
    return ~table["row"].is_in(pl.concat(beyond).implode())


def predict_as_told(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield predictions: the rows' `law`, `gpu`, what is `told`, `latency_us`, `time_us`, `low_us` and `high_us`."""
    for (gpu,), of_gpu in rows.group_by("gpu", maintain_order=True):
        for told, columns in TOLD.items():
            shown = of_gpu.drop("law", "gpu", "source", "latency_us").with_columns(**columns)
            shown = shown.with_columns(in_job=find_quantised_input())  # the rows are without their quantising
            found = predict(shown, str(gpu)).select("time_us", "low_us", "high_us")
            yield of_gpu.select("law", "gpu", "latency_us", told=pl.lit(told)).hstack(found)


def format_row(part: pl.DataFrame) -> tuple[str, ...]:
    """Return the cells of one law and what is told of it."""
    error = (pl.col("time_us") / pl.col("latency_us")).log().abs()
    inside = pl.col("latency_us").is_between("low_us", "high_us").mean() * 100
    percent = (pl.col("time_us") / pl.col("latency_us") - 1).abs() * 100
    stated, needed = (pl.col("high_us") / pl.col("time_us")).median(), error.quantile(0.9)
    found = part.select(
        percent.median().alias("median"), p90=percent.quantile(0.9), inside=inside, stated=stated, needed=needed
    )
    figures = found.row(0, named=True)
    worst = part.group_by("gpu").agg(inside=inside).sort("inside").row(0, named=True)
    return (
        LAW_TITLES[part["law"][0]], part["told"][0], f"{part.height:,}", f"{figures['median']:.1f}",
        f"{figures['p90']:.0f}", f"{figures['inside']:.0f} %", f"{figures['stated']:.2f}",
        f"{math.exp(figures['needed']):.2f}", f"{worst['inside']:.0f} % {worst['gpu']}",
    )  # fmt: skip
