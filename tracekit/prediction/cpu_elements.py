"""What ops do to each element on a CPU beyond reading and writing it: functions, random numbers, windows.

The law of ``predictors`` knows families. On a GPU such work hides behind the memory; a core needs clocks for it, in
vectors of 16 numbers or one by one.
"""

import json
import math

import polars as pl

from predictors import Gpu
from predictors.laws.cpu import GRAIN_ELEMENTS

CLOCKS = {
    "gelu": 1.4, "gelu_backward": 2.9, "tanh": 8.9, "sigmoid": 1.1, "silu": 1.1, "silu_backward": 2.0, "exp": 2.6,
    "log": 3.3, "rsqrt": 0.6, "sqrt": 1.1, "erf": 4.3, "softplus": 5.1, "sin": 4.2, "cos": 4.2, "where": 14.6,
    "masked_fill": 15.5, "native_dropout": 23.0, "bernoulli_": 23.0, "gt": 1.2, "lt": 1.2, "ge": 1.2, "le": 1.2,
    "eq": 1.2, "ne": 1.2, "max_pool2d_with_indices": 29.0, "avg_pool2d": 6.5,
}  # fmt: skip
"""Clocks of a core for each element of the largest input, beside those of the law: of fp32 on an EPYC 9R14 with PyTorch
2.13, timed one by one in a cache."""
TRAINED_NORM_CLOCKS = 4.8
"""Of a batch norm that takes the batch's own statistics."""
TRAINED_NORM = r"^bn_fw_tr|^batch_norm_collect"
"""Kernels of such norms in captured programs."""


def add_element_clocks(table: pl.DataFrame, times: pl.DataFrame, cpu: Gpu) -> pl.DataFrame:
    """Add the clocks of ops' elements to times that a CPU's law tells.

    Args:
        table: The kernels.
        times: Their predicted times.
        cpu: The CPU.
    """
    op = pl.col("op").str.strip_prefix("aten::")
    trained = pl.when(pl.col("name").str.contains(TRAINED_NORM)).then(TRAINED_NORM_CLOCKS)
    clocks = op.replace_strict(CLOCKS, default=None, return_dtype=pl.Float64)
    asked = table.select("input_dims", clocks=pl.coalesce(clocks, trained))
    told = asked.filter(pl.col("clocks").is_not_null())["input_dims"].drop_nulls().unique()
    counts = {dims: count_elements(dims) for dims in told}
    elements = pl.col("input_dims").replace_strict(counts, default=None, return_dtype=pl.Float64)
    threads = (elements / GRAIN_ELEMENTS).ceil().clip(1, cpu.sms)
    more_us = asked.select(us=(elements * pl.col("clocks") / threads / cpu.boost_clock_mhz).fill_null(0.0))["us"]
    longer = 1 + pl.when(pl.col("method") == "law").then(more_us / pl.col("time_us")).otherwise(0.0)
    return times.with_columns(pl.col("time_us", "low_us", "high_us") * longer)


def count_elements(dims: str) -> float:
    """Return how many elements the largest tensor of an op's inputs has."""
    shapes = [one for one in json.loads(dims) if isinstance(one, list) and all(isinstance(size, int) for size in one)]
    return float(max((math.prod(shape) for shape in shapes if shape), default=0))
