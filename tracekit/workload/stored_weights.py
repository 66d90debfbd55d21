"""Compute the bytes of GEMMs whose weights are stored narrower than the precision that they are computed in."""

import polars as pl

from predictors.kernels import DTYPE_BYTES

INT4_GROUP_BYTES = 0.5 + 2 / 128
"""Bytes of a 4-bit weight with a 16-bit scale per 128 of them, as AWQ and GPTQ models have by default."""
WEIGHT_BYTES = DTYPE_BYTES | {"int4": INT4_GROUP_BYTES}
LEAST_OUTPUT_BYTES = 2.0
"""Results of arithmetic below 16 bits come out as 16 bits."""


def fill_stored_weights(kernels: pl.DataFrame) -> pl.DataFrame:
    """Fill ``bytes`` of the GEMMs of known sizes whose names say how their weights are stored.

    Args:
        kernels: Table with the columns of ``schema.KERNELS``.
    """
    item, stored = (
        pl.col(name).replace_strict(WEIGHT_BYTES, default=None, return_dtype=pl.Float64)
        for name in ("dtype", "weight_dtype")
    )
    m, n, k = (pl.col(side).cast(pl.Float64) for side in ("m", "n", "k"))
    moved = n * k * stored + m * k * item + m * n * pl.max_horizontal(item, LEAST_OUTPUT_BYTES)
    total = (pl.col("batch").fill_null(1) * moved).round().cast(pl.Int64, strict=False)
    mine = (pl.col("family") == "gemm") & pl.col("bytes").is_null()
    return kernels.with_columns(bytes=pl.when(mine).then(total).otherwise("bytes"))
