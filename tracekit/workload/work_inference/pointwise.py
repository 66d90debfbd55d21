"""Infer the work of pointwise kernels without shapes from their launch.

PyTorch's pointwise kernels give each thread a fixed number of elements, and have it in their name, as well as the
number of tensors (ATen/native/cuda/Loops.cuh, MemoryAccess.cuh). Three things stay unknown and give the bounds: the
last block may be only partly filled, an operand may be broadcast, or narrower than the precision of the arithmetic.

A GEMM's grid gives its output but not the length of its dot products, so GEMMs are left unchanged.
"""

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload.signature import ITEM_BYTES
from tracekit.workload.work_inference.override import override_columns
from tracekit.workload.work_inference.rule import WorkRule

VECTORISED_KERNEL = r"\bvectorized_elementwise_kernel<(\d+)"
UNROLLED_KERNEL = r"\bunrolled_elementwise_kernel<"
STRIDED_KERNEL = r"\belementwise_kernel(?:_manual_unroll)?<\d+, (\d+)"
POINTER_ARRAY = r"[aA]rray<char ?\*, (\d)"
MIN_ELEMENTS_PER_THREAD = 4
"""Elements per thread if the name has no larger number (thread_work_size)."""

# Number of tensors of a functor, where the name has no array of pointers.
FUNCTORS_BY_TENSORS = {
    1: r"FillFunctor",
    2: r"direct_copy|[AB]UnaryFunctor|OnSelf|OnOther",
    3: r"CUDAFunctor_add|BinaryFunctor",
}
# In a vectorised kernel that casts, the elements per thread depend on both types.
CAST_KERNEL = r"to(?:float|half|bfloat)\w*_copy_kernel"
# Copies between strides, and all unrolled kernels, may read and write different types.
COPY_KERNEL = r"\bgpu_kernel_impl<at::native::direct_copy"
MAX_CAST_FACTOR = 2.0


def infer_pointwise_work(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Infer the work of pointwise kernels that have none, and mark it ``geometry``.

    Args:
        kernels: Table with the columns of ``schema.KERNELS``; ``work_from`` is null where the work isn't known.

    Returns:
        The table, with ``work_low`` and ``work_high``, factors on the bytes, for such kernels too.
    """
    name = pl.col("name")
    names = kernels.select("name").unique().with_columns(
        per_thread=pl.when(name.str.contains(VECTORISED_KERNEL) & ~name.str.contains(CAST_KERNEL))
        .then(pl.max_horizontal(name.str.extract(VECTORISED_KERNEL).cast(pl.Int64, strict=False),
        pl.lit(MIN_ELEMENTS_PER_THREAD)))
        .when(name.str.contains(UNROLLED_KERNEL))
        .then(MIN_ELEMENTS_PER_THREAD)
        .otherwise(name.str.extract(STRIDED_KERNEL).cast(pl.Int64, strict=False)),
        tensors=pl.coalesce(
            name.str.extract(POINTER_ARRAY).cast(pl.Int64, strict=False),
            *(pl.when(name.str.contains(pattern)).then(count) for count, pattern in FUNCTORS_BY_TENSORS.items()),
        ),
        strided=name.str.contains(STRIDED_KERNEL),
        casts=name.str.contains(UNROLLED_KERNEL) | name.str.contains(COPY_KERNEL),
    )  # fmt: skip
    told = kernels.join(names, on="name", how="left", maintain_order="left").with_columns(
        item=pl.col("dtype").replace_strict(ITEM_BYTES, default=None, return_dtype=pl.Int64),
    )
    elements = pl.col("blocks") * pl.col("threads_per_block") * pl.col("per_thread")
    bytes_ = elements * _count_whole_tensors() * pl.col("item")
    mine = pl.col("work_from").is_null() & (pl.col("kind") == "kernel") & bytes_.is_not_null()
    filled = {
        "rows": pl.lit(1),
        "cols": elements,
        "flops": elements,
        "bytes": bytes_,
        "work_from": pl.lit("geometry"),
        "work_low": _compute_work_low(),
        "work_high": _compute_work_high(),
    }
    return told.with_columns(override_columns(mine, filled)).select(kernels.columns)


RULE = WorkRule(
    "pointwise-launch",
    "The grid of a pointwise kernel gives its elements, within bounds.",
    "PyTorch's source (Loops.cuh, MemoryAccess.cuh). An MI210's trace without ops: 12 % of GPU time has known "
    "work, none without the rule.",
    infer_pointwise_work,
)


def _count_whole_tensors() -> pl.Expr:
    """Count the tensors as large as the result; strided kernels of two operands mostly broadcast one."""
    return pl.col("tensors") - (pl.col("strided") & (pl.col("tensors") > 2)).cast(pl.Int64)


def _compute_work_high() -> pl.Expr:
    """Compute the most work that the launch allows, over the assumed work."""
    return pl.col("tensors") / _count_whole_tensors() * pl.when("casts").then(MAX_CAST_FACTOR).otherwise(1.0)


def _compute_work_low() -> pl.Expr:
    """Compute the least work that the launch allows, over the assumed work."""
    tensors, item = pl.col("tensors"), pl.col("item")
    block = pl.col("threads_per_block") * pl.col("per_thread")
    one_in_the_last_block = ((pl.col("blocks") - 1) * block + 1) / (pl.col("blocks") * block)
    one_is_a_mask = ((tensors - 1) * item + 1) / (tensors * item)
    operands = (
        pl.when("strided")
        .then(1 / _count_whole_tensors())
        .when("casts")
        .then(1 / MAX_CAST_FACTOR)
        .otherwise(one_is_a_mask)
    )
    return one_in_the_last_block * operands
