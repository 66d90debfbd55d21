"""Read aiconfigurator's kernel measurements: a checkout, its wheel (packed or not), or tables made from them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

import polars as pl

from predictors.fitted_kernels import LATENT_APART
from predictors.kernel_identity import SERVING_FRAMEWORKS, identify_library, parse_releases
from predictors.quantising import ONE_PASS, PER_TENSOR, PER_TENSOR_ENGINE, count_quantised_bytes
from predictors.training import mixers
from predictors.training.quantising import FAMILY

SYSTEM_FOLDERS = (
    "src/aiconfigurator/systems/data",
    "aic-core/src/aiconfigurator_core/systems/data",
    "aiconfigurator_core/systems/data",
)
"""In a checkout, until 2026 and since, and in the wheel aiconfigurator-core: system/framework/version/table_perf.txt
(CSV) or .parquet, today within a folder for the kind of kernel; `latency` in milliseconds."""
WHEEL_SUFFIX = ".whl"
_SYSTEMS = {"b60": "arc-pro-b60"}
"""System -> slug, where its name alone is that of no GPU."""
TABLE_FILES = {
    "gemm": "gemm_perf", "attention_context": "context_attention_perf", "encoder_attention": "encoder_attention_perf",
    "attention_generation": "generation_attention_perf", "latent_context": "context_mla_perf",
    "latent_generation": "generation_mla_perf", "latent_product": "mla_bmm_perf", "moe": "moe_perf",
}  # fmt: skip
"""Our name of a table -> name in a checkout."""
SCALE_FILE, CAST_FILE = "computescale_perf", "scale_matrix_perf"
"""Names in a checkout of the two halves of quantising a product's input to fp8: the scale, and the cast."""
ONE_PASS_ENGINE = "vllm"
"""Whose cast stands for all that take one pass. SGLang's table is left out: its cast takes up to four times as long as
products that contain one."""
MAX_ROWS_PER_KERNEL = 4000
"""Rows of one library and format that are kept of a checkout's table, the same shapes of every GPU. A fit uses fewer;
the checkout of 2026 has twelve million."""
_SHAPE_PRIMES = (7919, 104729, 1299709, 15485863, 32452843, 49979687, 67867967, 86028121, 104395301, 122949823)

LATENT_WIDTH, LATENT_CACHED = 544, 576
"""DeepSeek's latent attention, the only one of the tables: 512 elements of a token's vector in the cache and 64 rotated
ones are its key, the 512 its value; apart, keys have 192 elements and values 128. Half of the work is of either."""

MAX_FLOOR_US = 40.0
"""The shortest product or latent attention of a table takes 2 to 21 us. Where it takes longer, the host's launches were
measured: 55 to 280 us at any size, of vLLM's fp8 in blocks since 0.22, its latent attention, and on some systems."""

LATENT_HEAD, LATENT_RANK = 128, 512
"""Elements of a head before its keys are absorbed, and of the vector in the cache: the sides of the weights that
DeepSeek's latent attention multiplies each head by, before (`mla_gen_pre`) and after."""

DTYPE_COLUMNS = ("gemm_dtype", "moe_dtype", "attn_dtype", "mla_dtype", "bmm_dtype", "quant_dtype", "dtype")
NO_GATE = "nongated"
"""In the ``kernel_source`` of experts of two matrices, whose work is two thirds of what their shape says."""

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
_LFS_HEADER = b"version https://git-lfs"

ColumnExpressions = dict[str, pl.Expr | str]


def load(folder: Path, more: ColumnExpressions | None = None) -> Iterator[pl.DataFrame]:
    """Read the measurements in the columns of ``predictors.kernels``, one frame per kind of kernel and system.

    Args:
        folder: Checkout, wheel, folder of an unpacked wheel, or folder of our tables (gemm.parquet, ...), each with all
            systems.
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
        "latent_product": ("gemm", {"batch": "num_heads", "m": "num_tokens", **_get_latent_sides()}),
        "moe": ("moe", experts),
    }
    systems = _list_systems(folder)
    for name, (family, columns) in kinds.items():
        for frame in _read_systems(systems, TABLE_FILES[name]) if systems else _read_table(folder, name):
            yield _identify_kernels(frame, family).select(
                "framework", "engine", "release", "latency_us", "dtype", gpu="system", source=pl.lit("graph"),
                family=pl.lit(family), table=pl.lit(name), **columns, **(more or {}),
            )  # fmt: skip
    for system in systems:
        yield from _read_quantising(system, more)
    for name in mixers.CONVERTERS:
        for frame in _read_systems(systems, name):
            told = _thin_out(frame.with_columns(engine="framework"), mixers.MAX_ROWS_PER_KERNEL)
            told = told.with_columns(release=parse_releases(told["version"]))
            yield from (kernels.with_columns(**(more or {})) for kernels in mixers.convert_mixers(name, told))


def _get_latent_sides() -> ColumnExpressions:
    before = pl.col("op_name") == "mla_gen_pre"
    sides = {"n": (LATENT_RANK, LATENT_HEAD), "k": (LATENT_HEAD, LATENT_RANK)}
    return {name: pl.when(before).then(first).otherwise(then) for name, (first, then) in sides.items()}


def _read_quantising(system: Traversable, more: ColumnExpressions | None) -> Iterator[pl.DataFrame]:
    """Yield the times of quantising a product's input to fp8, of each kind (``quantising``)."""
    scale, cast = (list(_read_systems([system], name)) for name in (SCALE_FILE, CAST_FILE))
    if not scale or not cast:
        return
    keys = ["system", "framework", "version", "dtype", "m", "k"]
    scale_us = scale[0].select(*keys, scale_us="latency_us")
    both = cast[0].join(scale_us, on=keys)
    both = both.with_columns(engine="framework", release=parse_releases(both["version"]))
    for engine, part, time_us in (
        (PER_TENSOR_ENGINE, PER_TENSOR, pl.col("latency_us") + pl.col("scale_us")),
        (ONE_PASS_ENGINE, ONE_PASS, pl.col("latency_us")),
    ):
        yield both.filter(pl.col("engine") == engine).select(
            "framework", "engine", "release", "dtype", gpu="system", source=pl.lit("graph"), table=pl.lit(FAMILY),
            family=pl.lit(FAMILY), part=pl.lit(part, pl.String), rows="m", cols="k", latency_us=time_us,
            bytes=count_quantised_bytes(pl.col("m") * pl.col("k"), pl.lit(1.0), pl.lit(float(part is not None))),
            **(more or {}),
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


def _list_systems(folder: Path) -> list[Traversable]:
    """The folders of a checkout's or a wheel's systems; none of other folders."""
    packed = folder.suffix == WHEEL_SUFFIX and folder.is_file()
    tops: list[Traversable] = [zipfile.Path(folder, f"{name}/") if packed else folder / name for name in SYSTEM_FOLDERS]
    found = [system for top in tops if top.is_dir() for system in top.iterdir() if system.is_dir()]
    return sorted(found, key=lambda system: system.name)


def _read_systems(systems: list[Traversable], table: str) -> Iterator[pl.DataFrame]:
    """Yield the rows of a checkout's table, those of one system at a time."""
    for system in systems:
        files = (
            (file, framework, version)
            for file, (*_, framework, version) in _walk_files(system, ("", system.name))
            if file.name.startswith(f"{table}.") and framework in SERVING_FRAMEWORKS
        )
        if frames := [_read_file(file, system.name, framework, version) for file, framework, version in files]:
            yield pl.concat(frames, how="diagonal_relaxed")


def _walk_files(folder: Traversable, above: tuple[str, ...]) -> Iterator[tuple[Traversable, tuple[str, ...]]]:
    """Yield the files below a folder, and the names of the folders above each."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            yield from _walk_files(path, (*above, path.name))
        else:
            yield path, above


def _read_file(path: Traversable, system: str, framework: str, version: str) -> pl.DataFrame:
    content = path.read_bytes()
    if content.startswith(_LFS_HEADER):
        raise ValueError(f"{path} isn't there, only what git-lfs knows of it: run `git lfs pull` in the checkout")
    is_parquet = path.name.endswith(".parquet")
    frame = pl.read_parquet(content) if is_parquet else pl.read_csv(io.BytesIO(content), infer_schema_length=None)
    dtype = next((pl.col(name) for name in DTYPE_COLUMNS if name in frame.columns), pl.lit("bfloat16"))
    missing = {"window_size": pl.lit(0), "step": pl.lit(0), "power": pl.lit(None, pl.Float64)}
    frame = frame.with_columns(
        *(value.alias(column) for column, value in missing.items() if column not in frame.columns),
        system=pl.lit(_SYSTEMS.get(system, system)),
        framework=pl.lit(framework),
        version=pl.lit(version),
        dtype=dtype.replace(_DTYPES),
        latency_us=pl.col("latency").cast(pl.Float64) * 1e3,
    )
    return _thin_out(frame, MAX_ROWS_PER_KERNEL)


def _thin_out(frame: pl.DataFrame, rows: int) -> pl.DataFrame:
    """At most so many rows of each library and format in a release, chosen by their shapes alone."""
    kernel = [name for name in ("version", "kernel_source", "dtype") if name in frame.columns]
    sides = sorted(name for name, dtype in frame.schema.items() if dtype.is_integer())
    terms = [pl.col(name).cast(pl.UInt64) * prime for name, prime in zip(sides, _SHAPE_PRIMES, strict=False)]
    mixed = pl.sum_horizontal(terms) * 2654435761 % 4294967296
    return frame.filter(mixed.rank("ordinal").over(kernel) <= rows)
