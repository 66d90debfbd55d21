"""Which gradient each kernel of a convolution's backward op computes, where names don't tell.

The libraries compute the input's gradient first, the weight's after it.
"""

import polars as pl

from tracekit.workload.where import where

OP = "aten::convolution_backward"
NAMED = r"(?i)dgrad|wgrad|wrw|bwd"
BOTH = r"True, ?True"


def tell_apart(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the last of each such op turned into the weight's gradient, if none of them says what it is.

    Args:
        kernels: With ``op_row``, ``correlation`` and the columns of convolutions.
    """
    mine = (pl.col("op") == OP) & (pl.col("family") == "conv") & pl.col("m").is_not_null()
    asked = pl.col("concrete_inputs").str.contains(BOTH).fill_null(True)
    place = pl.col("correlation").filter(mine)
    unnamed = ~pl.col("name").str.contains(NAMED).filter(mine).any().over("op_row")
    last = (place.count().over("op_row") > 1) & (pl.col("correlation") == place.max().over("op_row"))
    turned = mine & asked & unnamed & last & pl.col("op_row").is_not_null()
    return kernels.with_columns(where(turned, {"direction": pl.lit("wgrad"), "m": pl.col("k"), "k": pl.col("m")}))
