"""Infer the number of parameters that an optimizer updates, and the bytes of weights that names say are packed.

A backward pass accumulates one gradient per parameter, with its shape. The grids of an optimizer op's kernels show
whether the op updates all of them: one block per chunk of each tensor.
"""

import json
import math

import polars as pl

from predictors.kernels import DTYPE_BYTES
from tracekit.arrays import has_name
from tracekit.workload.ops.optimizer import count_blocks

ACCUMULATE_GRAD_OP = "torch::autograd::AccumulateGrad"
OPTIMIZER_OP = r"_foreach_|_fused_"


def count_elements_by_blocks(ops: pl.DataFrame) -> dict[int, int]:
    """Count the parameters' elements by the blocks of a kernel over them, for each set of parameters with gradients."""
    if not has_name(ops, f"^{ACCUMULATE_GRAD_OP}$"):
        return {}
    gradients = ops.filter((pl.col("name") == ACCUMULATE_GRAD_OP) & pl.col("input_dims").is_not_null()).sort("ts_ns")
    if gradients.is_empty():
        return {}
    stepped = ops.filter(pl.col("name").str.contains(OPTIMIZER_OP))["ts_ns"].sort()
    passes = gradients.select("input_dims", backward=stepped.search_sorted(gradients["ts_ns"]))
    sizes: dict[int, int] = {}
    for (dims,) in passes.group_by("backward", maintain_order=True).agg("input_dims").select("input_dims").iter_rows():
        inputs = [json.loads(text)[0] for text in dims]
        shapes = [shape for shape in inputs if all(isinstance(size, int) for size in shape)]
        sizes[count_blocks(shapes)] = sum(math.prod(shape) for shape in shapes)
    return sizes


def infer_list_elements(sizes: dict[int, int]) -> pl.Expr:
    """Infer the elements of each list of the optimizer op that owns an activity; null if its grid fits no set.

    For a table with ``name``, ``op_row`` and ``blocks``.

    ``sizes`` are from ``count_elements_by_blocks``.
    """
    mine = pl.col("name").str.contains("multi_tensor_apply") & pl.col("op_row").is_not_null()
    blocks = pl.col("blocks").filter(mine).sum().over("op_row")
    elements = blocks.replace_strict(sizes, default=None, return_dtype=pl.Int64) if sizes else pl.lit(None, pl.Int64)
    return pl.when(mine).then(elements)


INT4_GROUP_BYTES = 0.5 + 2 / 128
"""Bytes of a 4-bit weight with a 16-bit scale per 128 of them, as AWQ and GPTQ models have by default."""
WEIGHT_BYTES = DTYPE_BYTES | {"int4": INT4_GROUP_BYTES}
LEAST_OUTPUT_BYTES = 2.0
"""Results of arithmetic below 16 bits come out as 16 bits."""


def fill_stored_weights(kernels: pl.DataFrame) -> pl.DataFrame:
    """Fill ``bytes`` of the GEMMs of known sizes whose names say how their weights are stored."""
    if kernels["weight_dtype"].null_count() == kernels.height:
        return kernels
    item, stored = (
        pl.col(name).replace_strict(WEIGHT_BYTES, default=None, return_dtype=pl.Float64)
        for name in ("dtype", "weight_dtype")
    )
    m, n, k = (pl.col(side).cast(pl.Float64) for side in ("m", "n", "k"))
    moved = n * k * stored + m * k * item + m * n * pl.max_horizontal(item, LEAST_OUTPUT_BYTES)
    total = (pl.col("batch").fill_null(1) * moved).round().cast(pl.Int64, strict=False)
    mine = (pl.col("family") == "gemm") & pl.col("bytes").is_null()
    return kernels.with_columns(bytes=pl.when(mine).then(total).otherwise("bytes"))
