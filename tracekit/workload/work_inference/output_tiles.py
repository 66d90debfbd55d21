"""Infer the size of a GEMM's output from its tile and its grid, where its shape isn't known.

Each block computes one tile of the output, so that blocks and tile give its size; the names of cuBLAS, CUTLASS and
Tensile tell the tile. The time on the trace's GPU then gives the depth (``predictors.without_shapes``):

    ampere_bf16_s16816gemm_bf16_128x256..., 96 blocks     8 x 12 tiles: 1024 x 3072

Which of the products of two numbers that make up the grid it is can't be told: the one nearest to a square counts, or
the one with the rows of the batch's tokens. Grids that say nothing are left out:

- A persistent kernel has about as many blocks as the GPU has SMs, or a small multiple.
- Of blocks that share the depth of a tile the name tells on NVIDIA's GPUs, but on AMD's seldom. There the sizes of
  decoding, whose few tiles are split most, stay with the law's narrow tile.
- A tile with a side up to 32 is taken for any few rows.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.trace import RankTrace
from tracekit.workload.work_inference.rule import WorkRule

MAX_NARROW_SIDE = 32
MAX_TOKENS = 1024
"""Up to so many, products run on as many rows as the batch has tokens; of more, some run on the last of each
sequence only."""
MAX_BLOCKS = 1_000_000
PERSISTENT_KERNEL = r"(?i)nvjet|sm(?:90|1[0-2]\d)|cutlass3x|persistent|stream_?k"
"""Kernels since Hopper, which may have one block per SM."""
MIN_PERSISTENT_FRACTION = 0.85
"""Least part of the SMs that the clusters of a persistent kernel's blocks fill."""
AMD_KERNEL = r"^Cijk_"
ALIGNMENT = r"align([12])(?:\D|$)"
"""Of 16-bit operands whose rows don't begin at multiples of 16 bytes, CUTLASS's kernels load one or two elements."""
KEY = ("blocks", "tile_m", "tile_n")


def infer_covered_outputs(kernels: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """Fill in ``covered_m`` and ``covered_n``.

    Args:
        kernels: Table with the columns of ``schema.KERNELS``; ``work_from`` is null where the work isn't known.
        trace: What the rank recorded.
    """
    sms = trace.device.sms if trace.device else 0
    told = kernels.with_row_index("row").filter(_has_grid_of_tiles(sms)) if sms else kernels.clear()
    if told.is_empty():
        return kernels
    few = pl.col("tokens") <= MAX_TOKENS
    sizes = pl.concat([_cover_tokens(told.filter(few)), _cover_squares(told.filter(~few.fill_null(False)))])
    return kernels.with_row_index("row").join(sizes, on="row", how="left", maintain_order="left").drop("row")


def _has_grid_of_tiles(sms: int) -> pl.Expr:
    """Whether a kernel is a GEMM of unknown work with a block for each tile of its output."""
    unknown = (pl.col("family") == "gemm") & pl.all_horizontal(pl.col("work_from", "m", "n", "k").is_null())
    waves = pl.col("blocks") / sms
    alone = pl.col("name").str.contains(PERSISTENT_KERNEL) & waves.is_between(MIN_PERSISTENT_FRACTION, 1)
    return (
        unknown
        & pl.col("blocks").is_between(1, MAX_BLOCKS)
        & (pl.min_horizontal("tile_m", "tile_n") > 0)
        & pl.col("tile_m").is_not_null()
        & pl.col("tile_n").is_not_null()
        & ~pl.col("split_k").fill_null(False)
        & ~(alone | waves.is_in([1.0, 2.0]))
    )


def _cover_tokens(told: pl.DataFrame) -> pl.DataFrame:
    """Cover outputs with as many rows as the batch has tokens, where whole columns of tiles do."""
    down = (pl.col("tokens") / pl.col("tile_m")).ceil().cast(pl.Int64)
    whole = (pl.col("blocks") % down == 0) & ~pl.col("name").str.contains(AMD_KERNEL)
    columns = pl.col("blocks") // down * pl.col("tile_n")
    return told.filter(whole).select("row", covered_m="tokens", covered_n=columns - _find_misalignment())


def _cover_squares(told: pl.DataFrame) -> pl.DataFrame:
    """Cover outputs that are as near to a square as the tiles' number allows."""
    wide = told.filter(pl.min_horizontal("tile_m", "tile_n") > MAX_NARROW_SIDE)
    grids = wide.select(KEY).unique()
    down = pl.Series("down", _divide_near_square(*(grids[name].to_numpy() for name in KEY)), dtype=pl.Int64)
    placed = wide.join(grids.with_columns(down), on=KEY, maintain_order="left")
    columns = pl.col("blocks") // pl.col("down") * pl.col("tile_n")
    return placed.select("row", covered_m=pl.col("down") * pl.col("tile_m"), covered_n=columns - _find_misalignment())


def _divide_near_square(blocks: Ints, tile_m: Ints, tile_n: Ints) -> Ints:
    """Return the rows of tiles of the grids whose outputs are nearest to squares."""
    small = np.arange(1, int(np.sqrt(blocks.max(initial=1))) + 1)
    large = blocks[:, None] // small
    down = np.concatenate([np.broadcast_to(small, large.shape), large], axis=1)
    divides = np.tile((large > 0) & (large * small == blocks[:, None]), 2)
    across = blocks[:, None] // np.maximum(down, 1)
    with np.errstate(divide="ignore"):
        oblong = np.abs(np.log(down * tile_m[:, None]) - np.log(across * tile_n[:, None]))
    return np.take_along_axis(down, np.where(divides, oblong, np.inf).argmin(axis=1)[:, None], axis=1)[:, 0]


def _find_misalignment() -> pl.Expr:
    """Elements by which rows of the operands miss a length that is aligned."""
    elements = pl.col("name").str.extract(ALIGNMENT).cast(pl.Int64)
    return pl.when(pl.col("dtype").is_in(["fp16", "bf16"])).then(elements).fill_null(0)


RULE = WorkRule(
    "output-tiles",
    "Tile and grid give the output's size of a GEMM without shapes, and its time the depth.",
    "24 traces from an A100, H100, H200, MI300X and V100, shapes taken away, each predicted for five GPUs: half of the "
    "GEMMs that it tells of miss the prediction with shapes by 19 % (without the rule 24 %), their sum in a trace by "
    "27 % (36 %).",
    infer_covered_outputs,
)
