"""Infer the work of softmax over short rows without shapes, from its launch.

PyTorch's kernel for rows of up to 2048 elements gives each row to a warp, or a shorter row to a part of a warp; a warp
takes two rows at a time if they have 128 elements or fewer. The kernel's name has the row's length, rounded up to a
power of two (PersistentSoftmax.cuh). The grid therefore gives the number of rows, up to one block, and the name their
length, up to a factor of two. Both give the bounds.

In PyTorch's other reductions a thread takes from less than one to over a thousand elements, so their grid gives
nothing.
"""

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload.ops.norm import SOFTMAX_FLOPS_PER_ELEMENT
from tracekit.workload.signature import CPP_DTYPES, ITEM_BYTES
from tracekit.workload.work_inference.override import override_columns
from tracekit.workload.work_inference.rule import WorkRule

WARP_SOFTMAX_KERNEL = r"softmax_warp_(forward|backward)<([\w:]+), ([\w:]+), [\w:]+, (\d+),"
MAX_PAIRED_ELEMENTS = 128
"""Maximum elements per row if a warp takes two rows."""
WARP_THREADS, WAVEFRONT_THREADS = 32, 64
AMD_KERNEL = r"^Cijk_|__amd_rocclr|\.kd$"
"""Kernels that only AMD's GPUs run."""


def infer_softmax_rows(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Infer the work of softmax over short rows: the most that the launch allows.

    Args:
        kernels: Table with the columns of ``schema.KERNELS``; ``work_from`` is null where the work isn't known.

    Returns:
        The table with ``work_from`` ``geometry``, ``work_low`` and ``work_high`` on these rows.
    """
    name = pl.col("name")
    if not kernels.select((pl.col("work_from").is_null() & name.str.contains(WARP_SOFTMAX_KERNEL)).any()).item():
        return kernels
    lanes = WAVEFRONT_THREADS if kernels["name"].str.contains(AMD_KERNEL).any() else WARP_THREADS
    width = 2 ** name.str.extract(WARP_SOFTMAX_KERNEL, 4).cast(pl.Int64, strict=False)
    rows_per_warp = pl.when(width <= MAX_PAIRED_ELEMENTS).then(2).otherwise(1)
    rows_per_block = pl.col("threads_per_block") // pl.min_horizontal(width, pl.lit(lanes)) * rows_per_warp
    read, written = (_get_cpp_bytes(name.str.extract(WARP_SOFTMAX_KERNEL, place)) for place in (2, 3))
    # The backward pass reads the output's gradient and the output, and writes the input's gradient.
    item = written + read * pl.when(name.str.extract(WARP_SOFTMAX_KERNEL, 1) == "backward").then(2).otherwise(1)
    rows = pl.col("blocks") * rows_per_block
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


RULE = WorkRule(
    "softmax-launch",
    "The grid and name of a softmax kernel over short rows give its rows and their length, within bounds.",
    "PyTorch's source (PersistentSoftmax.cuh). A linear layer of facebookresearch/param: 1 % of GPU time.",
    infer_softmax_rows,
)


def _get_cpp_bytes(type_: pl.Expr) -> pl.Expr:
    """Return the bytes of a C++ type."""
    sizes = {cpp: ITEM_BYTES[dtype] for cpp, dtype in CPP_DTYPES.items()}
    return type_.replace_strict(sizes, default=None, return_dtype=pl.Int64)
