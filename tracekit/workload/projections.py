"""GEMMs beside attention whose shapes weren't recorded: the projections into its heads and out of them.

Serving engines replay a model from CUDA graphs that they cut at attention, which runs by itself and so has an op with
shapes: tokens, heads, width, heads of the keys. The GEMMs next to it are the fused projection of query, key and
value, and that of the result. The model's width is that of the one matrix with a row per token that other ops take.
"""

import polars as pl

from tracekit.workload.where import where

OP = r"unified_attention_with_output$"
HEADS = r"^\[\[(\d+),(\d+),(\d+)\],\[\d+,(\d+),\d+\]"
MATRIX = r"^\[\[(\d+),(\d+)\]"


def fill(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the work of such GEMMs, marked ``projection``.

    Left alone are GEMMs beside other GEMMs, as separate projections are, and models whose width isn't clear.

    Args:
        kernels: With the columns of ``schema.KERNELS``; null in ``work_from`` where the work isn't known.
        ops: As in the trace (``schema.OPS``).
    """
    attends = (pl.col("family") == "attention") & pl.col("op").str.contains(OP).fill_null(False)
    lacks = (pl.col("family") == "gemm") & pl.col("work_from").is_null()
    if not kernels.select(attends.any() & lacks.any()).item():
        return kernels
    order = kernels.with_row_index("row").sort("device", "stream", "correlation", "ts_ns", "row")
    table = order.with_columns(at=pl.int_range(pl.len()), lacks=lacks, attends=attends)
    found = _beside(table, _sizes(kernels.filter(attends), ops)).unique("at", keep="none")
    filled = table.join(found, on="at", how="left", maintain_order="left").sort("row")
    mine = pl.col("lacks") & pl.col("known_m").is_not_null()
    sides = {side: pl.col(f"known_{side}") for side in ("m", "n", "k")}
    values = {"batch": pl.lit(1), **sides, "work_from": pl.lit("projection")}
    return filled.with_columns(where(mine, values)).select(kernels.columns)


def _sizes(attention: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Per ``input_dims`` of attention: ``tokens``, ``inner`` (of all heads), ``fused`` (and of keys), ``hidden``."""
    dims = attention.select("input_dims").unique().drop_nulls()
    tokens, heads, width, kv_heads = (
        pl.col("input_dims").str.extract(HEADS, i).cast(pl.Int64, strict=False) for i in range(1, 5)
    )
    sizes = dims.with_columns(tokens=tokens, inner=heads * width, fused=(heads + 2 * kv_heads) * width).drop_nulls()
    rows, cols = (pl.col("input_dims").str.extract(MATRIX, i).cast(pl.Int64, strict=False) for i in (1, 2))
    matrices = ops.select("input_dims").unique().select(tokens=rows, hidden=cols).drop_nulls().unique()
    joined = sizes.join(matrices, on="tokens").filter(
        pl.col("hidden") != pl.col("inner"), pl.col("hidden") != pl.col("fused"), pl.col("hidden") > 1
    )
    return joined.filter(pl.len().over("input_dims") == 1)


def _beside(table: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """``at`` of the GEMMs next to attention, and their ``known_m``, ``known_n`` and ``known_k``."""
    stream = "device", "stream"
    product = pl.when(pl.col("family") == "gemm").then("at")
    attention = pl.when("attends").then("at")
    around = table.select(
        "at",
        "attends",
        "input_dims",
        before=product.forward_fill().over(stream),
        after=product.backward_fill().over(stream),
        earlier=attention.shift(1).forward_fill().over(stream).fill_null(-1),
        later=attention.shift(-1).backward_fill().over(stream).fill_null(table.height),
    )
    near = around.filter("attends").join(sizes, on="input_dims")
    into = near.filter(pl.col("before") > pl.col("earlier")).select(
        at="before", next_to=pl.col("before") - 1, known_m="tokens", known_n="fused", known_k="hidden"
    )
    out_of = near.filter(pl.col("after") < pl.col("later")).select(
        at="after", next_to=pl.col("after") + 1, known_m="tokens", known_n="hidden", known_k="inner"
    )
    products = table.filter(pl.col("family") == "gemm").select(next_to="at")
    return pl.concat([into, out_of]).join(products, on="next_to", how="anti").drop("next_to")
