"""Tell how the laws cut matrix products, experts and attention up for a GPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.hardware import Hardware
from predictors.laws.attention import choose_key_blocks, choose_query_blocks
from predictors.laws.gemm import choose_expert_tiles, choose_gemm_tiles
from predictors.laws.terms import Tiles
from predictors.model import KernelsByLaw, LawChunk
from predictors.weights_file import Weights

TILE_COLUMNS = {
    "tile_m": pl.Int64, "tile_n": pl.Int64, "split_k": pl.Int64, "waves": pl.Float64, "kept_ratio": pl.Float64,
}  # fmt: skip
TILED_ATTENTION_LAWS = ("prefill", "encoder", "sequence")
VECTOR_UNIT_LAW = "gemm fp32"


def describe_tiles(kernels: KernelsByLaw, gpu: Hardware, weights: Weights) -> pl.DataFrame:
    """Return the tiles that the laws choose on a GPU.

    Args:
        kernels: Kernels as they run on this GPU.
        gpu: The GPU.
        weights: Fitted numbers.

    Returns:
        One row per kernel: ``tile_m`` (of attention queries), ``tile_n`` (not of attention), ``split_k`` (of attention
        parts of the keys), ``waves``, and of products whose traced tile is known ``kept_ratio``: how many times as long
        they would take with that one; null for kernels that aren't tiled.
    """
    columns = {name: np.full(kernels.table.height, np.nan) for name in TILE_COLUMNS}
    tile_m, tile_n = (kernels.table[name].to_numpy() for name in ("tile_m", "tile_n"))
    for part in kernels.chunks:
        on = gpu.on_mma if part.on_mma else gpu
        found = _choose_tiles(part, on, weights, (tile_m[part.rows], tile_n[part.rows]))
        if found is not None:
            for name, values in found._asdict().items():
                columns[name][part.rows] = values
    return pl.DataFrame([_to_series(name, columns[name], dtype) for name, dtype in TILE_COLUMNS.items()])


def _choose_tiles(part: LawChunk, gpu: Hardware, weights: Weights, traced: tuple[Floats, Floats]) -> Tiles | None:
    """The tiles of kernels that share a law; None if it has none."""
    x, kind = part.inputs.to_columns(gpu), part.law.split(" ")[0]
    if kind in TILED_ATTENTION_LAWS:
        return choose_query_blocks(x, gpu)
    if kind in ("decode", "latent"):
        return choose_key_blocks(x, gpu)
    if kind not in ("gemm", "moe"):
        return None
    constants = weights.get_law(part.law).compute_constants(gpu, part.inputs.frameworks, None)
    if kind == "moe":
        return choose_expert_tiles(x, gpu, constants)
    return choose_gemm_tiles(x, gpu, constants, traced, on_matrix_units=part.law != VECTOR_UNIT_LAW)


def _to_series(name: str, column: Floats, dtype: pl.DataType | type[pl.DataType]) -> pl.Series:
    return pl.Series(name, column, dtype=pl.Float64, nan_to_null=True).cast(dtype)
