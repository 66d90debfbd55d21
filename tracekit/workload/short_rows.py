"""Work of softmax over short rows without shapes, from its launch.

PyTorch's kernel for rows of up to 2048 elements gives each to a warp, or short ones to a part of it, two at a time
where they have 128 elements or fewer; the next power of two of their length is in its name (PersistentSoftmax.cuh). So
the grid tells the rows to a block, and the name their length to a factor of two: the bracket.

Of PyTorch's other reductions a thread takes from less than one to over a thousand elements, which no grid tells.
"""

import polars as pl

from tracekit.workload.ops.softmax import FLOPS_PER_ELEMENT
from tracekit.workload.signature import DTYPES, ITEM_BYTES
from tracekit.workload.where import where

KERNEL = r"softmax_warp_(forward|backward)<([\w:]+), ([\w:]+), [\w:]+, (\d+),"
MOST_PAIRED = 128
"""Elements up to which a warp takes two rows."""
WARP, WAVEFRONT = 32, 64
AMD = r"^Cijk_|__amd_rocclr|\.kd$"
"""Kernels that run on AMD's GPUs only."""


def fill(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the work of softmax over short rows, the most that the launch allows.

    Args:
        kernels: With the columns of ``schema.KERNELS``, and null in ``work_from`` where the work isn't known.

    Returns:
        The same with ``work_from`` ``geometry``, and with ``work_low`` and ``work_high``.
    """
    name = pl.col("name")
    lanes = WAVEFRONT if kernels["name"].str.contains(AMD).any() else WARP
    width = 2 ** name.str.extract(KERNEL, 4).cast(pl.Int64, strict=False)
    rows_per_warp = pl.when(width <= MOST_PAIRED).then(2).otherwise(1)
    rows_per_block = pl.col("threads_per_block") // pl.min_horizontal(width, pl.lit(lanes)) * rows_per_warp
    read, written = (_bytes(name.str.extract(KERNEL, place)) for place in (2, 3))
    # The gradient of the result and the result go in, the other gradient comes out.
    item = written + read * pl.when(name.str.extract(KERNEL, 1) == "backward").then(2).otherwise(1)
    rows = pl.col("blocks") * rows_per_block
    least = (rows - rows_per_block + 1) * (width // 2 + 1) / (rows * width)
    filled = {
        "rows": rows,
        "cols": width,
        "flops": FLOPS_PER_ELEMENT * rows * width,
        "bytes": rows * width * item,
        "work_from": pl.lit("geometry"),
        "work_low": least,
        "work_high": pl.lit(1.0),
    }
    mine = pl.col("work_from").is_null() & (rows * item).is_not_null()
    return kernels.with_columns(where(mine, filled))


def _bytes(type_: pl.Expr) -> pl.Expr:
    """Bytes of a C++ type."""
    sizes = {cpp: ITEM_BYTES[dtype] for cpp, dtype in DTYPES.items()}
    return type_.replace_strict(sizes, default=None, return_dtype=pl.Int64)
