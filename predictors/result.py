"""What is predicted of each distinct kernel, as the rows that `latency.predict` returns."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.coded import Coded
from predictors.fitted import Weights
from predictors.intervals import half_width
from predictors.machine import Machine
from predictors.model import Modelled

LINK_COPIES = ("HtoD", "DtoH", "PtoP")
FP32_CONVOLUTION = ("conv fp32", "gemm fp32")
"""By Winograd's algorithms too, or as a product only."""
SHAPES_OF_JOBS = 0.25
"""Half-width, as a logarithm, that attention over whole sequences has on top. It was fitted to benchmarks, whose
sequences are round and long; of 42 shapes of jobs, windows and a few tokens among them, 38 lie inside with it
(docs/accuracy-kernels.md)."""
CUDNN_CHOICES = 0.6
"""The same of convolutions in fp32 that no algorithm of Winograd's suits. GEMMs were measured in their place, but cuDNN
takes one of many kernels: of 91 public times a quarter are off by more than a factor of two (docs/accuracy.md,
KernelBench; 84 % lie inside with it)."""
METHODS = ("measured", "law", "transfer", "scaled", "kept", "unknown")
MEASURED, LAW, TRANSFER, SCALES, KEEPS, UNKNOWN = range(len(METHODS))


def widths(table: pl.DataFrame, gpu: Machine, weights: Weights) -> Floats:
    """Half-widths, as logarithms, of the intervals of kernels predicted from their shapes; 0 without one.

    A convolution in fp32 is as unsure as the less sure of its two laws: which way cuDNN takes, shapes don't tell.
    """
    laws, named = Coded.of(table["law"]), table["framework"].is_not_null().to_numpy()

    def width(seen: Machine, named: bool) -> Floats:
        return laws.map(lambda law: 0.0 if law is None else half_width(law, seen, weights, named))

    of_law = np.where(named, width(gpu, True), width(gpu, False))
    of_law = np.where(table["on_mma"].to_numpy(), width(gpu.on_mma, True), of_law)
    of_law = np.where(laws.among("sequence"), np.hypot(of_law, SHAPES_OF_JOBS), of_law)
    convolution = (table["family"] == "conv").to_numpy() & laws.among(*FP32_CONVOLUTION)
    if not convolution.any():
        return of_law
    less_sure = max(half_width(law, gpu, weights) for law in FP32_CONVOLUTION)
    either = np.where(laws.among("gemm fp32"), np.hypot(less_sure, CUDNN_CHOICES), less_sure)
    return np.where(convolution, np.maximum(of_law, either), of_law)


def result(alone: Modelled, row: Ints, time: Floats, width: Floats, method: Ints) -> pl.DataFrame:
    """A row for each launch, from what holds for its kernel and what its measurement makes of it.

    Args:
        alone: the distinct kernels.
        row: which of them each launch is.
        time: of each launch, in microseconds.
        width: half-width of its interval, as a logarithm.
        method: index into `METHODS`.
    """
    bound = alone.bound_us[row]
    factor = np.exp(width)
    low = np.maximum(time / factor, np.fmin(np.nan_to_num(bound), time))
    columns = {
        "time_us": time,
        "low_us": np.where(method == MEASURED, time, low),
        "high_us": time * factor,
        "bound_us": bound,
        "utilization": np.divide(bound, time, out=np.full(time.size, np.nan), where=time > 0),
    }
    same = pl.col("dtype") == pl.col("asked")
    link = (pl.col("family") == "collective") | (
        pl.col("copy_kind").is_in(LINK_COPIES) & (pl.col("limiter") != "latency")
    ).fill_null(False)
    limited = alone.table.with_columns(limiter=alone.limiter())
    named = limited.select(
        limiter=pl.when(link).then(pl.lit("link")).otherwise("limiter"), runs_as=pl.when(~same).then("dtype")
    )[row]
    return pl.DataFrame(
        [pl.Series(name, values, dtype=pl.Float64, nan_to_null=True) for name, values in columns.items()]
        + [named["limiter"], pl.Series("method", METHODS, dtype=pl.String).gather(method), named["runs_as"]]
    )
