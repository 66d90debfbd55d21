"""The two grouped GEMMs of a mixture of experts (MoE), as a GEMM for each expert that gets tokens."""

import polars as pl

from tracekit.workload.ops.gemm_sequences import LEAST_TOKENS_FRACTION, count_hit_experts
from tracekit.workload.signature import ITEM_BYTES

TOKEN_EXPERT_PAIRS = pl.col("tokens") * pl.col("top_k")
"""Pairs of a token and one of its experts."""


def build_expert_gemm_columns(is_first: pl.Expr) -> dict[str, pl.Expr]:
    """Build the columns of a GEMM per expert with tokens.

    Args:
        is_first: Whether it is the GEMM into the experts, not the one out of them. The table has the columns
            ``tokens``, ``top_k``, ``experts``, ``hidden``, ``wide`` (columns of the first GEMM's output) and ``inner``
            (columns of the second one's input: half of them after a gate).
    """
    experts, top_k = pl.col("experts"), pl.col("top_k")
    visited = count_hit_experts(pl.col("tokens"), experts, top_k).round().cast(pl.Int64).clip(1)
    n = pl.when(is_first).then("wide").otherwise("hidden")
    k = pl.when(is_first).then("hidden").otherwise("inner")
    least = count_hit_experts((pl.col("tokens") * LEAST_TOKENS_FRACTION).clip(1), experts, top_k)
    return {
        "family": pl.lit("gemm"),
        "batch": visited,
        "m": (TOKEN_EXPERT_PAIRS + visited - 1) // visited,
        "n": n,
        "k": k,
        "work_low": pl.min_horizontal(least / visited, 1.0),
        "tokens": pl.col("tokens"),
        "experts": experts,
        "top_k": top_k,
        "work_high": pl.max_horizontal(pl.min_horizontal("experts", TOKEN_EXPERT_PAIRS) / visited, 1.0),
    }


def get_item_bytes() -> pl.Expr:
    """Return the bytes of an element by the kernel's precision."""
    return pl.col("dtype").replace_strict(ITEM_BYTES, default=2, return_dtype=pl.Int64)
