"""Work of optimizers' kernels over lists of tensors without shapes, from their launch.

Each block of multi_tensor_apply, PyTorch's as well as Apex's and DeepSpeed's, works on 65,536 elements of one tensor of
each list, or on those that are left of it. How many lists there are is in the kernel's name, as is what it does with
them. The last block of each tensor may be filled in part only, and a launch takes a limited number of tensors: that is
the bracket.
"""

import polars as pl

from tracekit.workload.ops.optimizer import CHUNK
from tracekit.workload.signature import ITEM_BYTES
from tracekit.workload.where import where

LISTS = r"multi_tensor_apply_kernel<.*?TensorList(?:ScalarList)?Metadata<(?:\w+, )?(?:\(int\))?(\d)"
TENSORS = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}
"""Lists -> tensors that one launch takes (depth_to_max_tensors, in PyTorch and in Apex)."""
STEPS = r"(?:Adam|SGD|Adagrad|LAMB|NovoGrad)\w*Functor"
"""Change all lists but the gradients."""
ONE_WAY = r"(?:L2|Lp|Max|Non|Zero)\w*Functor"
"""Only read their lists, or only write them."""
READS = r"Functor<(?:float|double|c10::\w+), (?:\(int\))?\d, (?:\(int\))?(\d), (?:\(int\))?\d>"
"""PyTorch's functors tell how many lists they read; they write one."""
SQUARES = r"PointwiseOp\w*Functor.*multiplies"
"""Two of the lists that it reads are the same in every Adam."""


def fill(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the work of such kernels that have none, marked ``geometry``.

    Args:
        kernels: With the columns of ``schema.KERNELS``; null in ``work_from`` where the work isn't known.
    """
    name = pl.col("name")
    lists = name.str.extract(LISTS).cast(pl.Int64, strict=False)
    told = kernels.with_columns(
        tensors=lists.replace_strict(TENSORS, default=None, return_dtype=pl.Int64),
        passes=pl.when(name.str.contains(STEPS))
        .then(2 * lists - 1)
        .when(name.str.contains(ONE_WAY))
        .then(lists)
        .otherwise(
            pl.coalesce(name.str.extract(READS).cast(pl.Int64, strict=False) + 1 - name.str.contains(SQUARES), lists)
        ),
        item=pl.col("dtype").replace_strict(ITEM_BYTES, default=None, return_dtype=pl.Int64),
    )
    elements = pl.col("blocks") * CHUNK
    bytes_ = elements * pl.col("passes") * pl.col("item")
    mine = pl.col("work_from").is_null() & (pl.col("kind") == "kernel") & (bytes_ > 0) & pl.col("tensors").is_not_null()
    full = pl.max_horizontal(pl.col("blocks") - pl.col("tensors"), pl.lit(1)) / pl.col("blocks")
    filled = {
        "rows": pl.lit(1),
        "cols": elements,
        "flops": elements * pl.col("passes"),
        "bytes": bytes_,
        "work_from": pl.lit("geometry"),
        "work_low": full,
        "work_high": pl.lit(1.0),
    }
    return told.with_columns(where(mine, filled)).select(kernels.columns)
