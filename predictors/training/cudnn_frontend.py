"""Read NVIDIA/cudnn-frontend's benchmarks: attention of training, forward and backward.

A checkout's tables of results, or one table made from them, ``sdpa_training.parquet``. One call of cuDNN or
FlashAttention at a time, by events. Deterministic backward passes are left out where there are others: few jobs ask for
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

ATTENTION_FOLDER = Path("benchmark/sdpa_benchmark_training/results")
ATTENTION_TABLE = "sdpa_training.parquet"
_STACKS = {"cudnn": "cudnn", "flash_attention_3": "fa3", "flash_attention_4": "fa4"}
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "mxfp8": "mxfp8"}
_DIRECTIONS = {"fwd": "forward", "bwd": "backward"}
_MASKS = {"top_left": True, "no_mask": False}
"""Of a square of queries and keys, where the first query sees the first key only, or all see all."""


def load(folder: Path) -> Iterator[pl.DataFrame]:
    """Read the measurements in the columns of ``predictors.kernels``; nothing where the folder has none.

    Args:
        folder: Checkout, or folder of tables.
    """
    if tables := [*_read_attention(folder)]:
        yield _convert_attention(pl.concat(tables))


def _read_attention(folder: Path) -> Iterator[pl.DataFrame]:
    """Attention with one pass a row, ``profile_pass`` and ``ms``."""
    if (folder / ATTENTION_TABLE).exists():
        yield _select_attention(pl.read_parquet(folder / ATTENTION_TABLE))
    for path in sorted((folder / ATTENTION_FOLDER).rglob("*.csv")):
        table = pl.read_csv(path, infer_schema=False)
        if "time_ms" in table.columns:
            yield _select_attention(table.rename({"time_ms": "ms"}))
        elif "fwd_time_ms" in table.columns:
            for name in _DIRECTIONS:
                yield _select_attention(table.with_columns(profile_pass=pl.lit(name), ms=pl.col(f"{name}_time_ms")))


def _select_attention(table: pl.DataFrame) -> pl.DataFrame:
    sizes = ("batch_size", "q_seqlen", "kv_seqlen", "num_q_heads", "num_kv_heads", "head_dim_qk", "head_dim_vo")
    names = ("backend", "data_type", "attn_mask", "gpu_name", "profile_pass")
    return table.select(
        *(pl.col(name).cast(pl.Float64, strict=False) for name in (*sizes, "sliding_window_size", "ms")),
        *(pl.col(name).cast(pl.String) for name in names),
        deterministic=pl.col("deterministic_bwd").cast(pl.String).str.to_lowercase() == "true",
    )


def _convert_attention(table: pl.DataFrame) -> pl.DataFrame:
    known = table.filter(
        pl.col("ms").is_finite(),
        *(pl.col(name).is_in(list(of)) for name, of in (("backend", _STACKS), ("data_type", _DTYPES))),
        *(pl.col(name).is_in(list(of)) for name, of in (("attn_mask", _MASKS), ("profile_pass", _DIRECTIONS))),
    )
    kernel = pl.struct(pl.exclude("ms", "deterministic"))
    is_other_pass = pl.col("deterministic") & (~pl.col("deterministic")).any().over(kernel)
    known = known.filter(~is_other_pass | (pl.col("profile_pass") == "fwd"))
    return known.select(
        family=pl.lit("attention"),
        source=pl.lit("graph"),
        gpu="gpu_name",
        framework=pl.col("backend").replace(_STACKS),
        dtype=pl.col("data_type").replace(_DTYPES),
        direction=pl.col("profile_pass").replace(_DIRECTIONS),
        causal=pl.col("attn_mask").replace_strict(_MASKS, return_dtype=pl.Boolean),
        batch="batch_size",
        heads="num_q_heads",
        kv_heads="num_kv_heads",
        q_len="q_seqlen",
        kv_len="kv_seqlen",
        # Keys and values have half of the work each.
        head_dim=(pl.col("head_dim_qk") + pl.col("head_dim_vo")) / 2,
        window=pl.col("sliding_window_size").fill_null(0.0),
        paged=pl.lit(value=False),
        latency_us=1e3 * pl.col("ms"),
    )
