"""Infer the work of pointwise kernels, softmax and kernels over lists of tensors without shapes, from their grids."""

import polars as pl

from tracekit.arrays import has_name
from tracekit.trace import RankTrace
from tracekit.workload.ops.norm import SOFTMAX_FLOPS_PER_ELEMENT
from tracekit.workload.ops.optimizer import CHUNK_ELEMENTS
from tracekit.workload.signature import CPP_DTYPES, ITEM_BYTES
from tracekit.workload.work_inference.rule import WorkRule, override_columns

VECTORISED_KERNEL = r"\bvectorized_elementwise_kernel<(\d+)"
UNROLLED_KERNEL = r"\bunrolled_elementwise_kernel<"
STRIDED_KERNEL = r"\belementwise_kernel(?:_manual_unroll)?<\d+, (\d+)"
POINTWISE_KERNEL = rf"{VECTORISED_KERNEL}|{UNROLLED_KERNEL}|{STRIDED_KERNEL}"
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

    Returns:
        The table, with ``work_low`` and ``work_high``, factors on the bytes, for such kernels too.
    """
    if not has_name(kernels, POINTWISE_KERNEL):
        return kernels
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
    # 100 blocks of 128 threads with 4 elements each are 51,200; an fp32 add has 3 tensors of them, 614,400 bytes.
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


POINTWISE_RULE = WorkRule(
    "pointwise-launch",
    "The grid of a pointwise kernel gives its elements, within bounds.",
    "PyTorch's source (Loops.cuh, MemoryAccess.cuh). An MI210's trace without ops: 12 % of GPU time has known "
    "work, none without the rule.",
    infer_pointwise_work,
)
"""PyTorch's pointwise kernels give each thread a fixed number of elements, and have it in their name, as well as the
number of tensors (ATen/native/cuda/Loops.cuh, MemoryAccess.cuh). Three things stay unknown and give the bounds: the
last block may be only partly filled, an operand may be broadcast, or narrower than the precision of the arithmetic.

A GEMM's grid gives its output but not the length of its dot products, so GEMMs are left unchanged.
"""


def _count_whole_tensors() -> pl.Expr:
    """Count the tensors as large as the result; strided kernels of two operands mostly broadcast one.

    A strided add has 3 tensors, of which 2 count; a strided copy has 2, and both do.
    """
    return pl.col("tensors") - (pl.col("strided") & (pl.col("tensors") > 2)).cast(pl.Int64)


def _compute_work_high() -> pl.Expr:
    """Compute the most work that the launch allows, over the assumed work.

    A strided add: 3 / 2, if no operand is broadcast. A copy that may cast: 2 / 2 * 2, if
    its elements are twice as wide as assumed.
    """
    return pl.col("tensors") / _count_whole_tensors() * pl.when("casts").then(MAX_CAST_FACTOR).otherwise(1.0)


def _compute_work_low() -> pl.Expr:
    """Compute the least work that the launch allows, over the assumed work.

    A vectorised add in bf16 with 100 blocks of 512 elements: (99 * 512 + 1) / (100 * 512) = 0.990 of the elements, and
    (2 * 2 + 1) / (3 * 2) = 0.833 of the bytes, if one operand is a mask of bytes.
    """
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


WARP_SOFTMAX_KERNEL = r"softmax_warp_(forward|backward)<([\w:]+), ([\w:]+), [\w:]+, (\d+),"
MAX_PAIRED_ELEMENTS = 128
"""Maximum elements per row if a warp takes two rows."""
WARP_THREADS, WAVEFRONT_THREADS = 32, 64
AMD_GPU_KERNEL = r"^Cijk_|__amd_rocclr|\.kd$"
"""Kernels that only AMD's GPUs run."""


def infer_softmax_rows(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Infer the work of softmax over short rows: the most that the launch allows.

    Returns:
        The table with ``work_from`` ``geometry``, ``work_low`` and ``work_high`` on these rows.
    """
    if not has_name(kernels, WARP_SOFTMAX_KERNEL):
        return kernels
    name = pl.col("name")
    lanes = WAVEFRONT_THREADS if has_name(kernels, AMD_GPU_KERNEL) else WARP_THREADS
    width = 2 ** name.str.extract(WARP_SOFTMAX_KERNEL, 4).cast(pl.Int64, strict=False)
    # softmax_warp_forward<.., 6, ..> with 128 threads: rows of up to 2 ** 6 = 64, and 128 / 32 * 2 = 8 rows per block.
    rows_per_warp = pl.when(width <= MAX_PAIRED_ELEMENTS).then(2).otherwise(1)
    rows_per_block = pl.col("threads_per_block") // pl.min_horizontal(width, pl.lit(lanes)) * rows_per_warp
    read, written = (_get_cpp_bytes(name.str.extract(WARP_SOFTMAX_KERNEL, place)) for place in (2, 3))
    # The backward pass reads the output's gradient and the output, and writes the input's gradient.
    item = written + read * pl.when(name.str.extract(WARP_SOFTMAX_KERNEL, 1) == "backward").then(2).otherwise(1)
    rows = pl.col("blocks") * rows_per_block
    # Longer than the next smaller power of two, 33 of 64; of the last block's 8 rows there may be one.
    least = (rows - rows_per_block + 1) * (width // 2 + 1) / (rows * width)
    filled = {
        "rows": rows,
        "cols": width,
        "flops": SOFTMAX_FLOPS_PER_ELEMENT * rows * width,
        "bytes": rows * width * item,
        "work_from": pl.lit("geometry"),
        "work_low": least,
        "work_high": pl.lit(1.0),
    }
    mine = pl.col("work_from").is_null() & (rows * item).is_not_null()
    return kernels.with_columns(override_columns(mine, filled))


SOFTMAX_RULE = WorkRule(
    "softmax-launch",
    "The grid and name of a softmax kernel over short rows give its rows and their length, within bounds.",
    "PyTorch's source (PersistentSoftmax.cuh). A linear layer of facebookresearch/param: 1 % of GPU time.",
    infer_softmax_rows,
)


def _get_cpp_bytes(type_: pl.Expr) -> pl.Expr:
    """Return the bytes of a C++ type."""
    sizes = {cpp: ITEM_BYTES[dtype] for cpp, dtype in CPP_DTYPES.items()}
    return type_.replace_strict(sizes, default=None, return_dtype=pl.Int64)


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
    """Infer the work of multi-tensor kernels that have none, and mark it ``geometry``."""
    if not has_name(kernels, LIST_COUNT):
        return kernels
    name = pl.col("name")
    lists = name.str.extract(LIST_COUNT).cast(pl.Int64, strict=False)
    # Adam of 4 lists reads 4 and writes 3: 7 passes. A PointwiseOp of 3 lists, of which 2 are the same, reads 2 and
    # writes 1: 3 passes.
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
    # Of 100 blocks over 36 tensors, the last of each tensor may be nearly empty: 64 % are surely full.
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


MULTI_TENSOR_RULE = WorkRule(
    "multi-tensor-launch",
    "The grid of an optimizer's kernel over lists of tensors gives their elements, within bounds.",
    "The source of PyTorch's multi_tensor_apply, Apex and DeepSpeed. HTA's trace_diff on a V100: 1 % of GPU time.",
    infer_multi_tensor_work,
)
"""Each block of multi_tensor_apply (PyTorch's, Apex's and DeepSpeed's) works on 65,536 elements of one tensor of each
list, or on the rest of that tensor. The kernel's name has the number of lists and the operation on them. Bounds on the
work follow because the last block of each tensor may be only partly filled, and a launch takes a limited number of
tensors.
"""
