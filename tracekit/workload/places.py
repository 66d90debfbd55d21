"""Which of its op's GEMMs each kernel is, or which others ran, where an op runs several different ones."""

import re

import polars as pl

from tracekit.workload.names import family_of
from tracekit.workload.ops import chains, recurrent

GROUPED = re.compile(r"fused_moe_kernel|grouped_?gemm", re.IGNORECASE)
OWNER = ("op_row", "captured_row", "call_of_graph")
"""What tells one call of an op from another."""


def of_products(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with ``place`` and ``products``: each one's place among the GEMMs of its op, and how many these are.

    Null for all kernels but the GEMMs of an op in ``chains.CHAINS``.

    Args:
        kernels: With ``name``, ``ts_ns``, ``op``, ``op_row``, ``captured_row`` and ``call``.
    """
    table = kernels.with_row_index("row")
    products = _products(table, list(chains.CHAINS))
    placed = products.sort("ts_ns", "row").select(
        "row", place=pl.int_range(pl.len(), dtype=pl.Int64).over(OWNER), products=pl.len().cast(pl.Int64).over(OWNER)
    )
    return table.join(placed, on="row", how="left", maintain_order="left").drop("row")


def of_recurrent(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with ``of_call``: what GEMMs their call ran, a line ``count name`` for each name.

    Null for all kernels but the GEMMs of a recurrent op.

    Args:
        kernels: As for :func:`of_products`.
    """
    table = kernels.with_row_index("row")
    products = _products(table, list(recurrent.STATE_AND_DIRECTION))
    names = products.group_by(*OWNER, "name").len().with_columns(line=pl.format("{} {}", "len", "name"))
    calls = names.group_by(OWNER).agg(of_call=pl.col("line").sort().str.join("\n"))
    told = products.select("row", *OWNER).join(calls, on=OWNER, nulls_equal=True).select("row", "of_call")
    return table.join(told, on="row", how="left", maintain_order="left").drop("row")


def _products(kernels: pl.DataFrame, ops: list[str]) -> pl.DataFrame:
    """GEMMs of some ops, with ``OWNER``."""
    owned = kernels.filter(pl.col("op").is_in(ops), pl.col("kind") == "kernel")
    names = [name for name in owned["name"].unique() if family_of(name) == "gemm" or GROUPED.search(name)]
    return owned.filter(pl.col("name").is_in(names)).with_columns(
        call_of_graph=pl.when(pl.col("captured_row").is_not_null()).then("call")
    )
