"""Infer which gradient each kernel of a convolution's backward op computes, if the kernels' names don't have it.

The libraries compute the input's gradient first, then the weight's.
"""

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload.work_inference.override import override_columns
from tracekit.workload.work_inference.rule import WorkRule

CONVOLUTION_BACKWARD = "aten::convolution_backward"
DATA_GRADIENT_IN_NAME = r"(?i)dgrad|bwd|backward"
"""Words for the input's gradient, in names that don't have one for the weight's."""
BOTH_GRADIENTS_WANTED = r"True, ?True"


def infer_weight_gradients(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Mark the weight gradient of each convolution backward op, if no kernel of it is named as one.

    Beside a kernel that is named as the input's gradient, those without a direction are the weight's; if none is
    named, the last one is.

    Args:
        kernels: Table with ``op_row``, ``correlation`` and the columns of convolutions.
    """
    if CONVOLUTION_BACKWARD not in kernels["op"]:
        return kernels
    mine = (pl.col("op") == CONVOLUTION_BACKWARD) & (pl.col("family") == "conv") & pl.col("m").is_not_null()
    asked = pl.col("concrete_inputs").str.contains(BOTH_GRADIENTS_WANTED).fill_null(True)
    weight = mine & (pl.col("direction") == "wgrad")
    data = mine & ~weight & pl.col("name").str.contains(DATA_GRADIENT_IN_NAME)
    place = pl.when(mine).then("correlation")
    last = (place.count().over("op_row") > 1) & (place == place.max().over("op_row"))
    other = pl.when(data.any().over("op_row")).then(~data).otherwise(last)
    turned = mine & asked & ~weight.any().over("op_row") & other & pl.col("op_row").is_not_null()
    return kernels.with_columns(
        override_columns(turned, {"direction": pl.lit("wgrad"), "m": pl.col("k"), "k": pl.col("m")})
    )


RULE = WorkRule(
    "weight-gradients",
    "Of a convolution's backward op without a kernel named as the weight's gradient, the kernel without a direction "
    "is it, or else the last one.",
    "cuDNN and MIOpen run both gradients in this order in the public traces of convolutional networks.",
    infer_weight_gradients,
)
