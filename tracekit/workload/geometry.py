"""Work of pointwise kernels without shapes, from their launch.

PyTorch's pointwise kernels give each thread a fixed number of elements, which is in the kernel's name, as is how many
tensors it goes over (ATen/native/cuda/Loops.cuh, MemoryAccess.cuh). The last block may be filled in part only, an
operand may be broadcast, or narrower than the precision of the arithmetic: what that leaves open is the bracket.

A GEMM's grid tells its output but not the depth of its dot products, so GEMMs are left alone.
"""

import polars as pl

from tracekit.workload.signature import ITEM_BYTES
from tracekit.workload.where import where

VECTORISED = r"\bvectorized_elementwise_kernel<(\d+)"
UNROLLED = r"\bunrolled_elementwise_kernel<"
STRIDED = r"\belementwise_kernel(?:_manual_unroll)?<\d+, (\d+)"
TENSORS = r"[aA]rray<char ?\*, (\d)"
UNROLL = 4
"""Elements of a thread where the name doesn't say more (thread_work_size)."""

# Tensors that a functor goes over, where the name has no array of pointers.
FUNCTORS = {1: r"FillFunctor", 2: r"direct_copy|[AB]UnaryFunctor|OnSelf|OnOther", 3: r"CUDAFunctor_add|BinaryFunctor"}
# Of a vectorised kernel that casts, a thread's elements depend on both types.
CAST = r"to(?:float|half|bfloat)\w*_copy_kernel"
# Copies between strides, and all unrolled kernels, read and write what types they like.
COPY = r"\bgpu_kernel_impl<at::native::direct_copy"
CAST_SPREAD = 2.0


def fill(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the work of pointwise kernels that have none, marked ``geometry``.

    Args:
        kernels: With the columns of ``schema.KERNELS``; null in ``work_from`` where the work isn't known.

    Returns:
        The same, with ``work_low`` and ``work_high``, factors on the bytes, of such kernels too.
    """
    name = pl.col("name")
    names = kernels.select("name").unique().with_columns(
        per_thread=pl.when(name.str.contains(VECTORISED) & ~name.str.contains(CAST))
        .then(pl.max_horizontal(name.str.extract(VECTORISED).cast(pl.Int64, strict=False), pl.lit(UNROLL)))
        .when(name.str.contains(UNROLLED))
        .then(UNROLL)
        .otherwise(name.str.extract(STRIDED).cast(pl.Int64, strict=False)),
        tensors=pl.coalesce(
            name.str.extract(TENSORS).cast(pl.Int64, strict=False),
            *(pl.when(name.str.contains(pattern)).then(count) for count, pattern in FUNCTORS.items()),
        ),
        strided=name.str.contains(STRIDED),
        casts=name.str.contains(UNROLLED) | name.str.contains(COPY),
    )  # fmt: skip
    told = kernels.join(names, on="name", how="left", maintain_order="left").with_columns(
        item=pl.col("dtype").replace_strict(ITEM_BYTES, default=None, return_dtype=pl.Int64),
    )
    elements = pl.col("blocks") * pl.col("threads_per_block") * pl.col("per_thread")
    bytes_ = elements * _whole_tensors() * pl.col("item")
    mine = pl.col("work_from").is_null() & (pl.col("kind") == "kernel") & bytes_.is_not_null()
    filled = {
        "rows": pl.lit(1),
        "cols": elements,
        "flops": elements,
        "bytes": bytes_,
        "work_from": pl.lit("geometry"),
        "work_low": _least(),
        "work_high": _most(),
    }
    return told.with_columns(where(mine, filled)).select(kernels.columns)


def _whole_tensors() -> pl.Expr:
    """Tensors of as many elements as the result: what takes two operands by strides mostly broadcasts one of them."""
    return pl.col("tensors") - (pl.col("strided") & (pl.col("tensors") > 2)).cast(pl.Int64)


def _most() -> pl.Expr:
    """The most that the launch allows, over what is taken."""
    return pl.col("tensors") / _whole_tensors() * pl.when("casts").then(CAST_SPREAD).otherwise(1.0)


def _least() -> pl.Expr:
    """The least that the launch allows, over what is taken."""
    tensors, item = pl.col("tensors"), pl.col("item")
    block = pl.col("threads_per_block") * pl.col("per_thread")
    one_in_the_last_block = ((pl.col("blocks") - 1) * block + 1) / (pl.col("blocks") * block)
    one_is_a_mask = ((tensors - 1) * item + 1) / (tensors * item)
    operands = (
        pl.when("strided").then(1 / _whole_tensors()).when("casts").then(1 / CAST_SPREAD).otherwise(one_is_a_mask)
    )
    return one_in_the_last_block * operands
