"""Which of its op's products each kernel is, where an op runs several different ones."""

import re

import polars as pl

from tracekit.workload.names import family_of
from tracekit.workload.ops import chains

GROUPED = re.compile(r"fused_moe_kernel|grouped_?gemm", re.IGNORECASE)
OWNER = ("op_row", "captured_row", "call_of_graph")


def of_products(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with ``place`` and ``products``: the how-manieth product of its op each is, of how many.

    Null for all kernels but the products of an op in ``chains.CHAINS``.

    Args:
        kernels: With ``name``, ``ts_ns``, ``op``, ``op_row``, ``captured_row`` and ``call``.
    """
    table = kernels.with_row_index("row")
    chained = table.filter(pl.col("op").is_in(list(chains.CHAINS)), pl.col("kind") == "kernel")
    names = [name for name in chained["name"].unique() if family_of(name) == "gemm" or GROUPED.search(name)]
    products = chained.filter(pl.col("name").is_in(names)).with_columns(
        call_of_graph=pl.when(pl.col("captured_row").is_not_null()).then("call")
    )
    placed = products.sort("ts_ns", "row").select(
        "row", place=pl.int_range(pl.len(), dtype=pl.Int64).over(OWNER), products=pl.len().cast(pl.Int64).over(OWNER)
    )
    return table.join(placed, on="row", how="left", maintain_order="left").drop("row")
