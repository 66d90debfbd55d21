"""Infer the work of optimizers' kernels over lists of tensors (multi-tensor apply) without shapes, from their launch.

Each block of multi_tensor_apply (PyTorch's, Apex's and DeepSpeed's) works on 65,536 elements of one tensor of each
list, or on the rest of that tensor. The kernel's name has the number of lists and the operation on them. Bounds on the
work follow because the last block of each tensor may be only partly filled, and a launch takes a limited number of
tensors.
"""

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload.ops.optimizer import CHUNK_ELEMENTS
from tracekit.workload.signature import ITEM_BYTES
from tracekit.workload.work_inference.override import override_columns
from tracekit.workload.work_inference.rule import WorkRule

LIST_COUNT = r"multi_tensor_apply_kernel<.*?TensorList(?:ScalarList)?Metadata<(?:\w+, )?(?:\(int\))?(\d)"
MAX_TENSORS_BY_LISTS = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}
"""Maximum tensors of one launch by number of lists (depth_to_max_tensors, in PyTorch and in Apex)."""
STEP_FUNCTOR = r"(?:Adam|SGD|Adagrad|LAMB|NovoGrad)\w*Functor"
"""Functors that change all lists but the gradients."""
ONE_WAY_FUNCTOR = r"(?:L2|Lp|Max|Non|Zero)\w*Functor"
"""Functors that only read their lists, or only write them."""
READ_LIST_COUNT = r"Functor<(?:float|double|c10::\w+), (?:\(int\))?\d, (?:\(int\))?(\d), (?:\(int\))?\d>"
"""Number of lists that PyTorch's functors read; they write one."""
SQUARING_FUNCTOR = r"PointwiseOp\w*Functor.*multiplies"
"""Functors that read one list twice, as every Adam does."""


def infer_multi_tensor_work(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Infer the work of multi-tensor kernels that have none, and mark it ``geometry``.

    Args:
        kernels: Table with the columns of ``schema.KERNELS``; ``work_from`` is null where the work isn't known.
    """
    name = pl.col("name")
    if not kernels.select((pl.col("work_from").is_null() & name.str.contains(LIST_COUNT)).any()).item():
        return kernels
    lists = name.str.extract(LIST_COUNT).cast(pl.Int64, strict=False)
    told = kernels.with_columns(
        tensors=lists.replace_strict(MAX_TENSORS_BY_LISTS, default=None, return_dtype=pl.Int64),
        passes=pl.when(name.str.contains(STEP_FUNCTOR))
        .then(2 * lists - 1)
        .when(name.str.contains(ONE_WAY_FUNCTOR))
        .then(lists)
        .otherwise(
            pl.coalesce(
                name.str.extract(READ_LIST_COUNT).cast(pl.Int64, strict=False)
                + 1
                - name.str.contains(SQUARING_FUNCTOR),
                lists,
            )
        ),
        item=pl.col("dtype").replace_strict(ITEM_BYTES, default=None, return_dtype=pl.Int64),
    )
    elements = pl.col("blocks") * CHUNK_ELEMENTS
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
    return told.with_columns(override_columns(mine, filled)).select(kernels.columns)


RULE = WorkRule(
    "multi-tensor-launch",
    "The grid of an optimizer's kernel over lists of tensors gives their elements, within bounds.",
    "The source of PyTorch's multi_tensor_apply, Apex and DeepSpeed. HTA's trace_diff on a V100: 1 % of GPU time.",
    infer_multi_tensor_work,
)
