"""The work of a kernel: floating-point operations and compulsory memory traffic, from its shape."""

from __future__ import annotations

import polars as pl

from predictors.kernels import DTYPE_BYTES

BACKWARD_ATTENTION_FLOPS = 2.5
"""Backward over forward FLOPs of attention: five matrix products instead of two (FlashAttention-2, section 3.1)."""


def with_work(table: pl.DataFrame) -> pl.DataFrame:
    """Adds `work_flops` and `work_bytes`, null where the shape isn't known; a `share` of an op counts as that share.

    A multiply-add is 2 FLOPs. Bytes are compulsory: each input read once, each output written once. Given `bytes`
    win over the formula of products and convolutions (a weight may be narrower than the arithmetic), and with `flops`
    they are the work of every family without a formula.

    Args:
        table: from `kernels.with_law`.
    """
    family = pl.col("family")
    flops = (
        pl.when(family.is_in(["gemm", "conv"]))
        .then(2 * pl.col("batch") * pl.col("m") * pl.col("n") * pl.col("k"))
        .when(family == "attention")
        .then(_attention_flops())
        .when(family == "moe")
        .then(6 * moe_rows() * pl.col("hidden") * pl.col("inter") / pl.col("tp"))
        .otherwise(pl.col("flops").fill_null(0.0))
    )
    size = (
        pl.when(family.is_in(["gemm", "conv"]))
        .then(pl.coalesce("bytes", _gemm_bytes()))
        .when(family == "attention")
        .then(_attention_bytes())
        .when(family == "moe")
        .then(_moe_bytes())
        .when(family == "memcpy")
        .then(pl.col("bytes") * pl.when(pl.col("copy_kind").is_in(["HtoD", "DtoH", "PtoP"])).then(1.0).otherwise(2.0))
        .otherwise(pl.col("bytes"))
    )
    known = pl.col("law").is_not_null()
    return table.with_columns(
        work_flops=pl.when(known).then(flops * pl.col("share")),
        work_bytes=pl.when(known).then(size * pl.col("share")),
    )


def element_bytes(column: str) -> pl.Expr:
    """Bytes per element of the dtype in `column` (2 where it isn't known)."""
    return pl.col(column).replace_strict(DTYPE_BYTES, default=2.0, return_dtype=pl.Float64)


def output_bytes() -> pl.Expr:
    """Bytes per element of a matrix product's result: formats below 16 bit come out as 16 bit."""
    return pl.max_horizontal(element_bytes("dtype"), pl.lit(2.0))


def attended() -> pl.Expr:
    """Pairs of query and key of one head: the area under the causal mask and inside the window."""
    q, kv, window = pl.col("q_len"), pl.col("kv_len"), pl.col("window")
    reach = pl.when(window > 0).then(pl.min_horizontal(window, kv)).otherwise(kv)
    before = (kv - q).clip(0.0)
    growing = (reach - before).clip(0.0, q)
    causal = growing * before + growing * (growing + 1) / 2 + (q - growing) * reach
    return pl.when("causal").then(pl.min_horizontal(causal, q * reach)).otherwise(q * reach)


def attended_keys() -> pl.Expr:
    """Keys that at least one query of a sequence attends to."""
    q, kv, window = pl.col("q_len"), pl.col("kv_len"), pl.col("window")
    return pl.when(window > 0).then(pl.min_horizontal(window + q - 1, kv)).otherwise(kv)


def moe_rows() -> pl.Expr:
    """Token copies that one rank's experts work on when routing is balanced."""
    return (pl.col("tokens") * pl.col("topk") / pl.col("ep")).clip(1.0)


def moe_active_experts() -> pl.Expr:
    """Experts of one rank that get at least one token, expected under even random routing."""
    experts = pl.col("experts")
    hit = 1 - (1 - 1 / pl.max_horizontal(experts, pl.lit(1.0))) ** (pl.col("tokens") * pl.col("topk"))
    return (experts / pl.col("ep") * hit).clip(1.0)


def _gemm_bytes() -> pl.Expr:
    m, n, k = pl.col("m"), pl.col("n"), pl.col("k")
    return pl.col("batch") * ((m * k + k * n) * element_bytes("dtype") + m * n * output_bytes())


def _attention_flops() -> pl.Expr:
    flops = 4 * pl.col("batch") * pl.col("heads") * pl.col("head_dim") * attended()
    return pl.when(pl.col("direction") == "backward").then(BACKWARD_ATTENTION_FLOPS * flops).otherwise(flops)


def _attention_bytes() -> pl.Expr:
    queries = pl.col("batch") * pl.col("heads") * pl.col("q_len") * pl.col("head_dim") * output_bytes()
    keys = pl.col("batch") * pl.col("kv_heads") * attended_keys() * pl.col("head_dim") * element_bytes("kv_dtype")
    forward, backward = 2 * queries + 2 * keys, 4 * queries + 4 * keys
    return pl.when(pl.col("direction") == "backward").then(backward).otherwise(forward)


def _moe_bytes() -> pl.Expr:
    weights = moe_active_experts() * 3 * pl.col("hidden") * pl.col("inter") / pl.col("tp") * element_bytes("dtype")
    return weights + 2 * moe_rows() / pl.col("topk") * pl.col("hidden") * 2
