"""Take the quantising of the input off products in fp8 and nvfp4, whose engines' benchmarks contain it.

An engine's product in fewer than 16 bits takes its input in 16 bits and quantises it first: TensorRT-LLM's in fp8
with a scale of the whole input, whose passes take 10 us of the 20 us of a product of few tokens on a B200. In a job the
kernel before often does it, and where none does, a trace shows it as a kernel of its own.
"""

from __future__ import annotations

import polars as pl

from predictors.kernels import DTYPE_BYTES
from predictors.quantising import (
    INPUT_BYTES,
    ONE_PASS,
    PER_TENSOR,
    count_quantised_bytes,
    find_quantised_input,
    scales_whole_input,
)
from predictors.weights_file import load_hardware

FAMILY = "quantise"
SHORTEST_US = {PER_TENSOR: 9.0, ONE_PASS: 2.1}
"""Of inputs of few tokens where nothing was measured: medians of eight GPUs (aiconfigurator-core 0.12.0)."""
MIN_PRODUCT_FRACTION = 0.2
"""Of a measured time that is left to the product at least: quantising was timed apart, in a loop of its own."""


def subtract_quantising(rows: pl.DataFrame) -> pl.DataFrame:
    """Take quantising off the times of products that contain it.

    Args:
        rows: Measured kernels with ``latency_us``, those of the family 'quantise' among them.
    """
    if "part" not in rows.columns:
        rows = rows.with_columns(part=pl.lit(None, pl.String))
    contains = find_quantised_input() & (pl.col("source") == "graph")
    # Sources count rows as whole numbers or not.
    kinds = {"rows": pl.col("m").cast(pl.Float64), "cols": pl.col("k").cast(pl.Float64), "part": _tell_part()}
    products = rows.filter(contains).drop("rows", "cols", "part", strict=False).with_columns(**kinds)
    if products.is_empty():
        return rows
    keys = ["gpu", "part", "rows", "cols"]
    times = rows.filter(pl.col("family") == FAMILY)
    if times.is_empty():
        times = products.clear()
    measured = times.select("gpu", "part", pl.col("rows", "cols").cast(pl.Float64), quantise_us="latency_us")
    found = products.join(measured, on=keys, how="left", nulls_equal=True, maintain_order="left")
    size = pl.col("dtype").replace_strict(DTYPE_BYTES, return_dtype=pl.Float64)
    written = (INPUT_BYTES + size) / (INPUT_BYTES + DTYPE_BYTES["fp8"])
    taken = pl.coalesce(pl.col("quantise_us") * written, _estimate_us(size, products))
    least = MIN_PRODUCT_FRACTION * pl.col("latency_us")
    product = pl.max_horizontal(pl.col("latency_us") - taken, least)
    apart = found.with_columns(latency_us=product).drop("rows", "cols", "part", "quantise_us")
    return pl.concat([rows.filter(~contains), apart], how="diagonal_relaxed")


def _tell_part() -> pl.Expr:
    return pl.when(scales_whole_input()).then(pl.lit(PER_TENSOR))


def _estimate_us(size: pl.Expr, products: pl.DataFrame) -> pl.Expr:
    """What quantising takes where it wasn't measured: as long as the least, or as the memory takes."""
    slugs = products["gpu"].unique().to_list()
    gbps = {slug: load_hardware(slug).bandwidth_gbps for slug in slugs}
    moved = count_quantised_bytes(pl.col("rows") * pl.col("cols"), size, scales_whole_input().cast(pl.Float64))
    shortest = pl.when(scales_whole_input()).then(SHORTEST_US[PER_TENSOR]).otherwise(SHORTEST_US[ONE_PASS])
    return pl.max_horizontal(shortest, moved / pl.col("gpu").replace_strict(gbps, return_dtype=pl.Float64) / 1e3)
