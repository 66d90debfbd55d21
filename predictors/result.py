"""Build the rows that ``predict`` returns from the predictions of the distinct kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats, Ints, is_true
from predictors.categorical import CategoricalColumn
from predictors.hardware import Hardware
from predictors.intervals import ENGINE, LIBRARY, NEW_RELEASE, NOTHING, TOLD_ALL, compute_half_width
from predictors.model import LIMITERS, KernelsByLaw, ModelTimes
from predictors.power import compute_demand_w, limit_power_w
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


def compute_half_widths(
    kernels: KernelsByLaw, gpu: Hardware, weights: Weights, source: Hardware | None = None
) -> Floats:
    """Half-widths, as logarithms, of the intervals of kernels predicted from their shapes; 0 without one.

    Where a source is given, they are those of times that were measured there and carried over. An fp32 convolution gets
    the wider interval of its two laws, because its shape does not determine cuDNN's algorithm.
    """
    laws, told = kernels.law, classify_told(kernels, weights)

    def width(seen: Hardware, there: Hardware | None) -> Floats:
        of_law, kinship = np.zeros(kernels.height), classify_kinship(there, seen) if there else None
        for level in told.categories:
            at_level = partial(compute_half_width, gpu=seen, weights=weights, told=str(level), kinship=kinship)
            found = laws.map(lambda law: 0.0 if law is None else at_level(law))  # noqa: B023
            of_law = np.where(told.is_in(level), found, of_law)
        return of_law

    of_law = width(gpu, source)
    if kernels.is_on_mma.any():
        of_law = np.where(kernels.is_on_mma, width(gpu.on_mma, source and source.on_mma), of_law)
    of_law = np.where(laws.is_in("sequence"), np.hypot(of_law, SEQUENCE_EXTRA_HALF_WIDTH), of_law)
    convolution = kernels.family.is_in("conv") & laws.is_in(*FP32_CONV_LAWS)
    if not convolution.any():
        return of_law
    less_sure = max(compute_half_width(law, gpu, weights) for law in FP32_CONV_LAWS)
    either = np.where(laws.is_in("gemm fp32"), np.hypot(less_sure, FP32_CONV_EXTRA_HALF_WIDTH), less_sure)
    return np.where(convolution, np.maximum(of_law, either), of_law)


def classify_told(kernels: KernelsByLaw, weights: Weights) -> CategoricalColumn:
    """Return what is told of the software of each kernel: one of `TOLD_LEVELS`, or all."""
    unnamed, no_engine = (kernels.names[name].is_in(None) for name in ("framework", "engine"))
    no_release = np.isnan(kernels.table["release"].to_numpy())
    levels = {
        NOTHING: unnamed,
        LIBRARY: no_engine,
        ENGINE: no_release,
        TOLD_ALL: _are_fitted(kernels, ~no_release, weights),
        NEW_RELEASE: np.ones(kernels.height, dtype=np.bool_),
    }
    first_that_holds = np.argmax(list(levels.values()), axis=0)
    return CategoricalColumn(tuple(levels), first_that_holds).take(np.arange(kernels.height))


def _are_fitted(kernels: KernelsByLaw, has_release: Bools, weights: Weights) -> Bools:
    """Return which kernels are of releases that their law was fitted to."""
    if not has_release.any():
        return has_release
    known = [
        {"law": law, "engine": engine, "release": release, "fitted": True}
        for law, fitted in weights.laws.items()
        for engine, releases in fitted.releases.items()
        for release in releases
    ]
    schema = {"law": pl.String, "engine": pl.String, "release": pl.Float64, "fitted": pl.Boolean}
    keys = ["law", "engine", "release"]
    fitted = kernels.table[keys].join(pl.DataFrame(known, schema), on=keys, how="left", maintain_order="left")["fitted"]
    return is_true(fitted)


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
    kernels, demand_w = alone.kernels, compute_demand_w(alone.kernels, row, time, gpu)
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
    limiter = pl.Series("limiter", LIMITERS)[alone.classify_limiters()[row]]
    return pl.DataFrame(
        [pl.Series(name, values, dtype=pl.Float64, nan_to_null=True) for name, values in columns.items()]
        + [limiter, pl.Series("method", METHODS)[method], kernels.runs_as[row]]
    )
