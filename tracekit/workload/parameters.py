"""How many parameters an optimizer goes over, where its tensor lists weren't recorded.

A backward pass accumulates one gradient per parameter, with its shape. Whether an optimizer's op goes over all of them,
its kernels' grids tell: one block per chunk of each tensor.
"""

import json
import math

import polars as pl

from tracekit.workload.ops.optimizer import blocks_of

GRADIENT = "torch::autograd::AccumulateGrad"
OPTIMIZER = r"_foreach_|_fused_"


def elements_by_blocks(ops: pl.DataFrame) -> dict[int, int]:
    """Parameters' elements by the blocks that go over them, for each set of parameters with gradients.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    gradients = ops.filter((pl.col("name") == GRADIENT) & pl.col("input_dims").is_not_null()).sort("ts_ns")
    if gradients.is_empty():
        return {}
    stepped = ops.filter(pl.col("name").str.contains(OPTIMIZER))["ts_ns"].sort()
    passes = gradients.select("input_dims", backward=stepped.search_sorted(gradients["ts_ns"]))
    sizes: dict[int, int] = {}
    for (dims,) in passes.group_by("backward", maintain_order=True).agg("input_dims").select("input_dims").iter_rows():
        inputs = [json.loads(text)[0] for text in dims]
        shapes = [shape for shape in inputs if all(isinstance(size, int) for size in shape)]
        sizes[blocks_of(shapes)] = sum(math.prod(shape) for shape in shapes)
    return sizes


def over_all(sizes: dict[int, int]) -> pl.Expr:
    """Elements of each list of the optimizer op that owns an activity; null where its grid fits no set of parameters.

    For a table with ``name``, ``op_row`` and ``blocks``.

    Args:
        sizes: From :func:`elements_by_blocks`.
    """
    mine = pl.col("name").str.contains("multi_tensor_apply") & pl.col("op_row").is_not_null()
    blocks = pl.col("blocks").filter(mine).sum().over("op_row")
    elements = blocks.replace_strict(sizes, default=None, return_dtype=pl.Int64) if sizes else pl.lit(None, pl.Int64)
    return pl.when(mine).then(elements)
