"""Infer which gradient each kernel of a convolution's backward op computes, if the kernels' names don't have it.

The libraries compute the input's gradient first, then the weight's.
"""

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload.work_inference.override import override_columns
from tracekit.workload.work_inference.rule import WorkRule

CONVOLUTION_BACKWARD = "aten::convolution_backward"
DIRECTION_IN_NAME = r"(?i)dgrad|wgrad|wrw|bwd"
BOTH_GRADIENTS_WANTED = r"True, ?True"


def infer_weight_gradients(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Mark the last kernel of each convolution backward op as the weight gradient, if no kernel name has a direction.

    Args:
        kernels: Table with ``op_row``, ``correlation`` and the columns of convolutions.
    """
    if CONVOLUTION_BACKWARD not in kernels["op"]:
        return kernels
    mine = (pl.col("op") == CONVOLUTION_BACKWARD) & (pl.col("family") == "conv") & pl.col("m").is_not_null()
    asked = pl.col("concrete_inputs").str.contains(BOTH_GRADIENTS_WANTED).fill_null(True)
    place = pl.col("correlation").filter(mine)
    unnamed = ~pl.col("name").str.contains(DIRECTION_IN_NAME).filter(mine).any().over("op_row")
    last = (place.count().over("op_row") > 1) & (pl.col("correlation") == place.max().over("op_row"))
    turned = mine & asked & unnamed & last & pl.col("op_row").is_not_null()
    return kernels.with_columns(
        override_columns(turned, {"direction": pl.lit("wgrad"), "m": pl.col("k"), "k": pl.col("m")})
    )


RULE = WorkRule(
    "weight-gradients",
    "The last kernel of a convolution's backward op computes the weight gradient, if no kernel name has a direction.",
    "cuDNN and MIOpen run both gradients in this order in the public traces of convolutional networks.",
    infer_weight_gradients,
)
