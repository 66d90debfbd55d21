"""Build the rows that ``predict`` returns from the predictions of the distinct kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.categorical import CategoricalColumn
from predictors.hardware import Hardware
from predictors.intervals import ENGINE, LIBRARY, NEW_RELEASE, NOTHING, TOLD_ALL, compute_half_width
from predictors.kernel_identity import IDENTITY_COLUMNS
from predictors.model import ModelTimes
from predictors.power import LINK_COPY_KINDS, compute_demand_w, limit_power_w
from predictors.transfer import classify_kinship
from predictors.weights_file import Weights

FP32_CONV_LAWS = ("conv fp32", "gemm fp32")
"""By Winograd's algorithms too, or as a product only."""
SEQUENCE_EXTRA_HALF_WIDTH = 0.25
"""Half-width, as a logarithm, that attention over whole sequences has on top. It was fitted to benchmarks, whose
sequences are round and long; of 42 shapes of jobs, windows and a few tokens among them, 38 lie inside with it
(tests/validation/notes/kernels.md)."""
FP32_CONV_EXTRA_HALF_WIDTH = 0.6
"""The same of convolutions in fp32 that no algorithm of Winograd's suits. GEMMs were measured in their place, but cuDNN
takes one of many kernels: of 91 public times a quarter are off by more than a factor of two
(tests/validation/results/kernels/kernelbench.md; 84 % lie inside with it)."""
METHODS = ("measured", "law", "transfer", "inferred", "scaled", "kept", "unknown")
METHOD_MEASURED, METHOD_LAW, METHOD_TRANSFER, METHOD_INFERRED, METHOD_SCALED, METHOD_UNCHANGED, METHOD_UNKNOWN = range(
    len(METHODS)
)


def compute_half_widths(table: pl.DataFrame, gpu: Hardware, weights: Weights, source: Hardware | None = None) -> Floats:
    """Half-widths, as logarithms, of the intervals of kernels predicted from their shapes; 0 without one.

    Where a source is given, they are those of times that were measured there and carried over. An fp32 convolution gets
    the wider interval of its two laws, because its shape does not determine cuDNN's algorithm.
    """
    laws = CategoricalColumn.from_series(table["law"])
    told = CategoricalColumn.from_series(classify_told(table, weights))

    def width(seen: Hardware, there: Hardware | None) -> Floats:
        of_law, kinship = np.zeros(table.height), classify_kinship(there, seen) if there else None
        for level in told.categories:
            at_level = partial(compute_half_width, gpu=seen, weights=weights, told=str(level), kinship=kinship)
            found = laws.map(lambda law: 0.0 if law is None else at_level(law))  # noqa: B023
            of_law = np.where(told.is_in(level), found, of_law)
        return of_law

    of_law = width(gpu, source)
    if table["on_mma"].any():
        of_law = np.where(table["on_mma"].to_numpy(), width(gpu.on_mma, source and source.on_mma), of_law)
    of_law = np.where(laws.is_in("sequence"), np.hypot(of_law, SEQUENCE_EXTRA_HALF_WIDTH), of_law)
    convolution = (table["family"] == "conv").to_numpy() & laws.is_in(*FP32_CONV_LAWS)
    if not convolution.any():
        return of_law
    less_sure = max(compute_half_width(law, gpu, weights) for law in FP32_CONV_LAWS)
    either = np.where(laws.is_in("gemm fp32"), np.hypot(less_sure, FP32_CONV_EXTRA_HALF_WIDTH), less_sure)
    return np.where(convolution, np.maximum(of_law, either), of_law)


def classify_told(table: pl.DataFrame, weights: Weights) -> pl.Series:
    """Return what is told of the software of each kernel: one of `TOLD_LEVELS`, or all."""
    known = [
        {"law": law, "engine": engine, "release": release, "fitted": True}
        for law, fitted in weights.laws.items()
        for engine, releases in fitted.releases.items()
        for release in releases
    ]
    schema = {"law": pl.String, "engine": pl.String, "release": pl.Float64, "fitted": pl.Boolean}
    rows = table.select("law", *IDENTITY_COLUMNS)
    if rows["release"].null_count() < rows.height:
        rows = rows.join(
            pl.DataFrame(known, schema), on=["law", "engine", "release"], how="left", maintain_order="left"
        )
    else:
        rows = rows.with_columns(fitted=pl.lit(None, pl.Boolean))
    level = (
        pl.when(pl.col("framework").is_null())
        .then(pl.lit(NOTHING))
        .when(pl.col("engine").is_null())
        .then(pl.lit(LIBRARY))
        .when(pl.col("release").is_null())
        .then(pl.lit(ENGINE))
        .when("fitted")
        .then(pl.lit(TOLD_ALL))
        .otherwise(pl.lit(NEW_RELEASE))
    )
    return rows.select(level)[:, 0]


@dataclass(frozen=True)
class LaunchTimes:
    """Times of launches, one element each, in microseconds.

    Attributes:
        time_us: Time.
        half_width: Half-width of its interval, as a logarithm.
        method: Index into ``METHODS``.
        least_us: Where the interval begins at the earliest; NaN where nothing is known.
        most_us: Where it ends at the latest; likewise.
    """

    time_us: Floats
    half_width: Floats
    method: Ints
    least_us: Floats
    most_us: Floats


def build_result(alone: ModelTimes, row: Ints, launches: LaunchTimes, gpu: Hardware) -> pl.DataFrame:
    """A row for each launch, from what holds for its kernel and what its measurement makes of it.

    Args:
        alone: Predictions of the distinct kernels by the model alone.
        row: Index of the distinct kernel of each launch.
        launches: Their times.
        gpu: The GPU.
    """
    bound, time, method = alone.bound_us[row], launches.time_us, launches.method
    demand_w = compute_demand_w(alone.table, row, time, gpu)
    factor = np.exp(launches.half_width)
    least = np.fmax(np.nan_to_num(bound), launches.least_us)
    low = np.maximum(time / factor, np.fmin(least, time))
    high = np.fmin(time * factor, np.maximum(launches.most_us, time))
    columns = {
        "time_us": time,
        "low_us": np.where(method == METHOD_MEASURED, time, low),
        "high_us": high,
        "bound_us": bound,
        "utilization": np.divide(bound, time, out=np.full(time.size, np.nan), where=time > 0),
        "power_w": limit_power_w(demand_w, gpu),
        "demand_w": demand_w,
    }
    same = pl.col("dtype") == pl.col("asked")
    link = (pl.col("family") == "collective") | (
        pl.col("copy_kind").is_in(LINK_COPY_KINDS) & (pl.col("limiter") != "latency")
    ).fill_null(False)
    limited = alone.table.with_columns(limiter=alone.classify_limiters())
    named = limited.select(
        limiter=pl.when(link).then(pl.lit("link")).otherwise("limiter"), runs_as=pl.when(~same).then("dtype")
    )[row]
    return pl.DataFrame(
        [pl.Series(name, values, dtype=pl.Float64, nan_to_null=True) for name, values in columns.items()]
        + [named["limiter"], pl.Series("method", METHODS, dtype=pl.String).gather(method), named["runs_as"]]
    )
