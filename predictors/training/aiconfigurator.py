"""Read aiconfigurator's kernel measurements: the files of a checkout, or tables made from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from predictors.kernel_identity import SERVING_FRAMEWORKS, identify_library, parse_releases

SYSTEM_FOLDERS = (Path("src/aiconfigurator/systems/data"), Path("aic-core/src/aiconfigurator_core/systems/data"))
"""In a checkout, until 2026 and since: system/framework/version/table_perf.txt (CSV) or .parquet, today within a folder
for the kind of kernel; `latency` in milliseconds."""
TABLE_FILES = {
    "gemm": "gemm_perf", "attention_context": "context_attention_perf", "encoder_attention": "encoder_attention_perf",
    "attention_generation": "generation_attention_perf", "latent_context": "context_mla_perf",
    "latent_generation": "generation_mla_perf", "moe": "moe_perf",
}  # fmt: skip
"""Our name of a table -> name in a checkout."""

LATENT_WIDTH, LATENT_CACHED, LATENT_APART = 544, 576, 160
"""DeepSeek's latent attention, the only one of the tables: 512 elements of a token's vector in the cache and 64 rotated
ones are its key, the 512 its value; apart, keys have 192 elements and values 128. Half of the work is of either."""

MAX_FLOOR_US = 40.0
"""The shortest product or latent attention of a table takes 2 to 21 us. Where it takes longer, the host's launches were
measured: 55 to 280 us at any size, of vLLM's fp8 in blocks since 0.22, its latent attention, and on some systems."""

DTYPE_COLUMNS = ("gemm_dtype", "moe_dtype", "attn_dtype", "mla_dtype", "dtype")
NO_GATE = "nongated"
"""In the ``kernel_source`` of experts of two matrices, whose work is two thirds of what their shape says."""

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
_LFS_HEADER = b"version https://git-lfs"

ColumnExpressions = dict[str, pl.Expr | str]


def load(folder: Path, more: ColumnExpressions | None = None) -> Iterator[pl.DataFrame]:
    """Read the measurements in the columns of ``predictors.kernels``, one frame per kind of kernel and system.

    Args:
        folder: Checkout, or folder of our tables (gemm.parquet, ...), each with all systems.
        more: Further columns, by expressions of a checkout's.

    Raises:
        ValueError: The checkout lacks the files that git-lfs stores.
    """
    heads: ColumnExpressions = {
        "batch": "batch_size", "heads": "num_heads", "head_dim": "head_dim", "kv_len": pl.col("isl") + pl.col("step"),
    }  # fmt: skip
    cached: ColumnExpressions = heads | {
        "kv_heads": "num_key_value_heads", "window": "window_size", "causal": pl.lit(True),
        "kv_dtype": pl.col("kv_cache_dtype").replace(_DTYPES),
    }  # fmt: skip
    encoder: ColumnExpressions = heads | {
        "kv_heads": "num_heads", "window": pl.lit(0), "causal": pl.lit(False), "q_len": "isl", "kv_len": "isl",
    }  # fmt: skip
    latent: ColumnExpressions = {
        "batch": "batch_size", "heads": "num_heads", "kv_len": pl.col("isl") + pl.col("step"), "window": pl.lit(0),
        "kv_dtype": pl.col("kv_cache_dtype").replace(_DTYPES),
    }  # fmt: skip
    apart: ColumnExpressions = {
        "kv_heads": "num_heads", "head_dim": pl.lit(LATENT_APART), "causal": pl.lit(True), "q_len": "isl",
    }  # fmt: skip
    absorbed: ColumnExpressions = {
        "kv_heads": pl.lit(1), "head_dim": pl.lit(LATENT_WIDTH), "cache_width": pl.lit(LATENT_CACHED),
        "causal": pl.lit(False), "q_len": pl.lit(1),
    }  # fmt: skip
    experts: ColumnExpressions = {
        "tokens": "num_tokens", "hidden": "hidden_size", "inter": "inter_size", "topk": "topk", "tp": "moe_tp_size",
        "ep": "moe_ep_size", "experts": "num_experts", "routing": "distribution",
    }  # fmt: skip
    kinds: dict[str, tuple[str, ColumnExpressions]] = {
        "gemm": ("gemm", {"batch": pl.lit(1), "m": "m", "n": "n", "k": "k"}),
        "attention_context": ("attention", cached | {"q_len": "isl"}),
        "attention_generation": ("attention", cached | {"q_len": pl.lit(1)}),
        "encoder_attention": ("attention", encoder),
        "latent_context": ("attention", latent | apart),
        "latent_generation": ("attention", latent | absorbed),
        "moe": ("moe", experts),
    }
    read = _read_checkout if any((folder / systems).is_dir() for systems in SYSTEM_FOLDERS) else _read_table
    for frame, family, columns in ((f, *kind) for name, kind in kinds.items() for f in read(folder, name)):
        yield _identify_kernels(frame, family).select(
            "framework", "engine", "release", "latency_us", "dtype", gpu="system", source=pl.lit("graph"),
            family=pl.lit(family), **columns, **(more or {}),
        )  # fmt: skip


def _identify_kernels(frame: pl.DataFrame, family: str) -> pl.DataFrame:
    """Name each kernel's library or else its engine, without what is no kernel of its kind."""
    if "kernel_source" not in frame.columns:
        frame = frame.with_columns(kernel_source=pl.lit(None, pl.String))
    if family == "gemm" or "mla_dtype" in frame.columns:
        shortest = pl.col("latency_us").min().over("system", "framework", "version", "kernel_source", "dtype")
        frame = frame.filter(shortest <= MAX_FLOOR_US)
    frame = frame.filter(~pl.col("kernel_source").str.contains(NO_GATE).fill_null(value=False))
    frame = frame.with_columns(
        dtype=pl.col("dtype").replace(_DTYPES),
        engine="framework",
        release=parse_releases(frame["version"]),
        family=pl.lit(family),
    )
    return frame.with_columns(framework=pl.coalesce(identify_library(pl.col("kernel_source")), "engine"))


def _read_table(folder: Path, name: str) -> Iterator[pl.DataFrame]:
    path = folder / f"{name}.parquet"
    if not path.exists():
        return
    frame = pl.read_parquet(path).rename({"attn_dtype": "dtype"}, strict=False)
    text = [column for column, dtype in frame.schema.items() if dtype == pl.Categorical]
    numbers = [column for column, dtype in frame.schema.items() if dtype.is_integer()]
    yield frame.with_columns(pl.col(text).cast(pl.String), pl.col(numbers).cast(pl.Int64))


def _read_checkout(folder: Path, name: str) -> Iterator[pl.DataFrame]:
    for system in (system for systems in SYSTEM_FOLDERS for system in sorted((folder / systems).glob("*"))):
        files = (
            p for p in sorted(system.rglob(f"{TABLE_FILES[name]}.*")) if p.parent.parent.name in SERVING_FRAMEWORKS
        )
        if frames := [_read_file(path, system.name) for path in files]:
            yield pl.concat(frames, how="diagonal_relaxed")


def _read_file(path: Path, system: str) -> pl.DataFrame:
    with path.open("rb") as file:
        if file.read(len(_LFS_HEADER)) == _LFS_HEADER:
            raise ValueError(f"{path} isn't there, only what git-lfs knows of it: run `git lfs pull` in the checkout")
    frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema_length=None)
    dtype = next(name for name in DTYPE_COLUMNS if name in frame.columns)
    missing = {"window_size": pl.lit(0), "step": pl.lit(0), "power": pl.lit(None, pl.Float64)}
    return frame.with_columns(
        *(value.alias(column) for column, value in missing.items() if column not in frame.columns),
        system=pl.lit(system),
        framework=pl.lit(path.parent.parent.name),
        version=pl.lit(path.parent.name),
        dtype=pl.col(dtype),
        latency_us=pl.col("latency").cast(pl.Float64) * 1e3,
    )
