"""Measured kernels as one kernel table: the contract's columns plus `gpu`, `source` and `latency_us`."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from predictors.gpu import load_gpu
from predictors.training import tracelens

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
_MODELLED = ("fp32", "bf16", "fp16", "fp8", "fp8_block", "nvfp4")
_VECTOR = {"elem_unary": "elementwise", "elem_binary": "elementwise", "softmax": "softmax", "layernorm": "norm"}
KEYS = (
    "source", "gpu", "framework", "family", "dtype", "kv_dtype", "direction", "batch", "m", "n", "k", "rows", "cols",
    "flops", "bytes", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal", "window", "tokens", "hidden",
    "inter", "topk", "experts", "tp", "ep", "routing",
)  # fmt: skip


def load(data: Path) -> pl.DataFrame:
    """Every measured kernel under a data folder.

    Args:
        data: holds `aiconfigurator/*.parquet`, `neusight/*.parquet` and `tracelens/ops.parquet`, or some of them.

    Returns:
        One row per distinct kernel, GPU and framework: the contract's columns, `gpu` (a slug), `source` ('graph'
        where the time excludes the launch, 'eager' where it doesn't) and `latency_us`, the median over repeats and
        versions.
    """
    frames = [*_aiconfigurator(data / "aiconfigurator"), *_neusight(data / "neusight")]
    operators = data / "tracelens" / "ops.parquet"
    if operators.exists():
        frames.append(tracelens.load(operators))
    rows = pl.concat(frames, how="diagonal_relaxed")
    slugs = {name: load_gpu(name).slug for name in rows["gpu"].unique().to_list()}
    rows = rows.with_columns(pl.col("gpu").replace_strict(slugs))
    rows = rows.filter(pl.col("dtype").is_in(_MODELLED), pl.col("latency_us") > 0)
    return rows.group_by([k for k in KEYS if k in rows.columns], maintain_order=True).agg(
        pl.col("latency_us").cast(pl.Float64).median()
    )


def _read(path: Path) -> pl.DataFrame:
    frame = pl.read_parquet(path)
    text = [name for name, dtype in frame.schema.items() if dtype == pl.Categorical]
    numbers = [name for name, dtype in frame.schema.items() if dtype.is_integer()]
    return frame.with_columns(pl.col(text).cast(pl.String), pl.col(numbers).cast(pl.Int64))


def _aiconfigurator(folder: Path) -> list[pl.DataFrame]:
    def rows(name: str, family: str, dtype: str, **columns: pl.Expr | str) -> list[pl.DataFrame]:
        path = folder / f"{name}.parquet"
        if not path.exists():
            return []
        frame = _read(path).select(
            "framework", "latency_us", gpu="system", source=pl.lit("graph"), family=pl.lit(family),
            dtype=pl.col(dtype).replace(_DTYPES), **columns,
        )  # fmt: skip
        return [frame]

    heads: dict[str, pl.Expr | str] = {
        "batch": "batch_size", "heads": "num_heads", "head_dim": "head_dim",
        "kv_len": pl.col("isl") + pl.col("step"),
    }  # fmt: skip
    cached: dict[str, pl.Expr | str] = heads | {
        "kv_heads": "num_key_value_heads", "window": "window_size", "causal": pl.lit(True),
        "kv_dtype": pl.col("kv_cache_dtype").replace(_DTYPES),
    }  # fmt: skip
    encoder: dict[str, pl.Expr | str] = heads | {
        "kv_heads": "num_heads", "window": pl.lit(0), "causal": pl.lit(False), "q_len": "isl", "kv_len": "isl",
    }  # fmt: skip
    return [
        *rows("gemm", "gemm", "dtype", batch=pl.lit(1), m="m", n="n", k="k"),
        *rows("attention_context", "attention", "attn_dtype", q_len="isl", **cached),
        *rows("attention_generation", "attention", "attn_dtype", q_len=pl.lit(1), **cached),
        *rows("encoder_attention", "attention", "dtype", **encoder),
        *rows(
            "moe", "moe", "dtype", tokens="num_tokens", hidden="hidden_size", inter="inter_size", topk="topk",
            experts="num_experts", tp="moe_tp_size", ep="moe_ep_size", routing="distribution",
        ),
    ]  # fmt: skip


def _neusight(folder: Path) -> list[pl.DataFrame]:
    paths = [path for path in (folder / "kernels.parquet", folder / "kernels_extra.parquet") if path.exists()]
    if not paths:
        return []
    both = pl.concat([_read(path) for path in paths], how="vertical")
    both = both.select(
        "op_class", "latency_us", "flops", "B", "H", "Cin", "Cout", "in_hw", "gemm_m", "gemm_n", "gemm_k",
        gpu="gpu", source=pl.lit("eager"), dtype=pl.lit("fp32"),
        bytes="min_bytes",
    )  # fmt: skip
    # The P4 (75 W) throttles on long products: efficiency falls threefold with run length.
    both = both.filter(~((pl.col("gpu") == "Tesla P4") & (pl.col("op_class") == "linear") & (pl.col("flops") > 3e9)))
    common = ["gpu", "source", "dtype", "latency_us"]
    products = both.filter(pl.col("op_class").is_in(["linear", "bmm"])).select(
        *common, family=pl.lit("gemm"), m="gemm_m", n="gemm_n", k="gemm_k",
        batch=pl.when(pl.col("op_class") == "bmm").then("B").otherwise(1),
    )  # fmt: skip
    vectors = both.filter(pl.col("op_class").is_in(list(_VECTOR))).select(
        *common, "flops", "bytes", family=pl.col("op_class").replace(_VECTOR), rows="B", cols="H"
    )
    convolutions = both.filter(pl.col("op_class") == "conv").select(
        *common, "bytes", family=pl.lit("conv"), direction=pl.lit("forward"), batch=pl.lit(1), n="Cout",
        k=pl.col("Cin") * 9, m=(pl.col("flops") / (18 * pl.col("Cin") * pl.col("Cout"))).round().cast(pl.Int64),
    )  # fmt: skip
    return [products, vectors, convolutions]
