"""Number the GEMMs of an op that runs several different ones, or list which others its call ran."""

import re

import polars as pl

from tracekit.workload.names import infer_family
from tracekit.workload.ops import gemm_sequences, recurrent

GROUPED_GEMM_KERNEL = re.compile(r"fused_moe_kernel|grouped_?gemm", re.IGNORECASE)
OP_CALL_KEY = ("op_row", "captured_row", "call_of_graph")
"""Columns that identify one call of an op."""


def number_op_gemms(kernels: pl.DataFrame) -> pl.DataFrame:
    """Add ``place`` and ``products``: the position of each GEMM among those of its op's call, and their number.

    Both are null for all kernels but the GEMMs of an op in ``chains.GEMM_SEQUENCES``.

    Args:
        kernels: Table with ``name``, ``ts_ns``, ``op``, ``op_row``, ``captured_row`` and ``call``.
    """
    table = kernels.with_row_index("row")
    products = _select_gemms(table, list(gemm_sequences.GEMM_SEQUENCES))
    placed = products.sort("ts_ns", "row").select(
        "row",
        place=pl.int_range(pl.len(), dtype=pl.Int64).over(OP_CALL_KEY),
        products=pl.len().cast(pl.Int64).over(OP_CALL_KEY),
    )
    return table.join(placed, on="row", how="left", maintain_order="left").drop("row")


def list_recurrent_gemms(kernels: pl.DataFrame) -> pl.DataFrame:
    """Add ``of_call``: the GEMMs that the call ran, one line ``count name`` for each kernel name.

    Null for all kernels but the GEMMs of a recurrent op.

    Args:
        kernels: As for ``number_op_gemms``.
    """
    table = kernels.with_row_index("row")
    products = _select_gemms(table, list(recurrent.STATE_AND_DIRECTION_POSITIONS))
    names = products.group_by(*OP_CALL_KEY, "name").len().with_columns(line=pl.format("{} {}", "len", "name"))
    calls = names.group_by(OP_CALL_KEY).agg(of_call=pl.col("line").sort().str.join("\n"))
    told = products.select("row", *OP_CALL_KEY).join(calls, on=OP_CALL_KEY, nulls_equal=True).select("row", "of_call")
    return table.join(told, on="row", how="left", maintain_order="left").drop("row")


def _select_gemms(kernels: pl.DataFrame, ops: list[str]) -> pl.DataFrame:
    """Select the GEMMs of some ops, with the columns ``OP_CALL_KEY``."""
    owned = kernels.filter(pl.col("op").is_in(ops), pl.col("kind") == "kernel")
    names = [
        name for name in owned["name"].unique() if infer_family(name) == "gemm" or GROUPED_GEMM_KERNEL.search(name)
    ]
    return owned.filter(pl.col("name").is_in(names)).with_columns(
        call_of_graph=pl.when(pl.col("captured_row").is_not_null()).then("call")
    )
