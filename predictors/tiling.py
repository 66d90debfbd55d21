"""Tell which tiles the laws choose for matrix products on a GPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.hardware import Hardware
from predictors.laws.gemm import choose_gemm_tiles
from predictors.model import KernelsByLaw
from predictors.weights_file import Weights

TILE_COLUMNS = {"tile_m": pl.Int64, "tile_n": pl.Int64, "split_k": pl.Int64, "waves": pl.Float64}
GEMM_LAW_KIND = "gemm"
VECTOR_UNIT_LAW = "gemm fp32"


def describe_tiles(kernels: KernelsByLaw, gpu: Hardware, weights: Weights) -> pl.DataFrame:
    """Return the tiles that the laws of matrix products choose on a GPU.

    Args:
        kernels: Kernels as they run on this GPU.
        gpu: The GPU.
        weights: Fitted numbers.

    Returns:
        One row per kernel: ``tile_m``, ``tile_n``, ``split_k`` and ``waves``; null for other kernels than products.
    """
    columns = {name: np.full(kernels.table.height, np.nan) for name in TILE_COLUMNS}
    for part in kernels.chunks:
        if part.law.split(" ")[0] == GEMM_LAW_KIND:
            on = gpu.on_mma if part.on_mma else gpu
            constants = weights.get_law(part.law).compute_constants(on, part.inputs.frameworks, None)
            x, on_matrix_units = part.inputs.to_columns(on), part.law != VECTOR_UNIT_LAW
            found = choose_gemm_tiles(x, on, constants, on_matrix_units=on_matrix_units)
            for name, column in columns.items():
                column[part.rows] = getattr(found, name)
    return pl.DataFrame([_to_series(name, columns[name], dtype) for name, dtype in TILE_COLUMNS.items()])


def _to_series(name: str, column: Floats, dtype: pl.DataType | type[pl.DataType]) -> pl.Series:
    return pl.Series(name, column, dtype=pl.Float64, nan_to_null=True).cast(dtype)
