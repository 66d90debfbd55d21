"""Load measured kernels as one kernel table, with the additional columns ``gpu``, ``source`` and ``latency_us``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import polars as pl

from predictors.errors import PredictorError
from predictors.gpu_names import load_gpu
from predictors.kernels import TENSOR_FAMILIES
from predictors.training import aiconfigurator, neusight, published, tracelens, traces

_FITTED_DTYPES = ("fp32", "tf32", "3xtf32", "bf16", "fp16", "fp8", "fp8_block", "nvfp4")
"""Formats of matrix products that are fitted."""
KEY_COLUMNS = (
    "source", "gpu", "framework", "family", "dtype", "kv_dtype", "direction", "share", "batch", "m", "n", "k", "rows",
    "cols", "flops", "bytes", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal", "window", "paged", "tokens",
    "hidden", "inter", "topk", "experts", "tp", "ep", "routing", "blocks", "threads_per_block",
    "indexed", "across", "channels", "height", "width", "part",
)  # fmt: skip

MAX_VERSION_TIME_RATIO = 1.5
"""How far versions' times of an attention kernel may be apart; beyond, something slowed one down, or it is older."""


def load_datasets(*data: Path, gpus: Collection[str] | None = None) -> pl.DataFrame:
    """Every measured kernel under some folders.

    Args:
        data: Each a checkout of aiconfigurator or NeuSight, or a folder with such checkouts or tables made from them,
            named ``aiconfigurator``, ``neusight`` and ``tracelens``, or some of these.
        gpus: Slugs of the GPUs to load; all by default.

    Returns:
        One row per distinct kernel, GPU and framework: columns of the kernel table, ``gpu`` (a slug), ``source``
        ('graph', 'trace', 'published' or 'rate' where the time excludes the launch, 'eager' where it includes it),
        ``latency_us`` (median over repeats and versions), ``unslowed_us`` (the same, but the fastest of attention times
        that differ widely), and ``versions_us`` (the time of each version, of 'graph' only). Unknown GPUs are left out.

    Raises:
        ValueError: A folder has no measurement, or a checkout lacks its large files.
    """
    found = {folder: [_collect_times(frame, gpus) for frame in _read_frames(folder)] for folder in data}
    if empty := [str(folder) for folder, frames in found.items() if not frames]:
        raise ValueError(f"no measured kernels under {', '.join(empty)}")
    rows = pl.concat([frame for frames in found.values() for frame in frames], how="diagonal_relaxed")
    rows = rows.group_by([key for key in KEY_COLUMNS if key in rows.columns], maintain_order=True).agg(
        pl.col("times").explode()
    )
    times = pl.col("times").list
    slowed = (pl.col("family") == "attention") & (times.max() > MAX_VERSION_TIME_RATIO * times.min())
    return rows.select(
        pl.exclude("times"),
        latency_us=times.median(),
        unslowed_us=pl.when(slowed).then(times.min()).otherwise(times.median()),
        versions_us=pl.when(pl.col("source") == "graph").then("times"),
    )


def _collect_times(frame: pl.DataFrame, gpus: Collection[str] | None) -> pl.DataFrame:
    """The times of each distinct kernel of one source; a checkout's twenty million rows together take 24 GB."""
    named = {name: _find_slug(name) for name in frame["gpu"].unique().to_list()}
    slugs = {name: slug for name, slug in named.items() if slug and (gpus is None or slug in gpus)}
    fitted = ~pl.col("family").is_in(TENSOR_FAMILIES) | pl.col("dtype").is_in(_FITTED_DTYPES)
    rows = frame.with_columns(gpu=pl.col("gpu").replace_strict(slugs, default=None, return_dtype=pl.String))
    rows = rows.filter(pl.col("gpu").is_not_null(), fitted, pl.col("latency_us") > 0)
    keys = [key for key in KEY_COLUMNS if key in rows.columns]
    return rows.group_by(keys, maintain_order=True).agg(times=pl.col("latency_us").cast(pl.Float64))


def _read_frames(folder: Path) -> Iterator[pl.DataFrame]:
    if folder.suffix == ".parquet":
        yield traces.load(folder)
    if folder.suffix == ".csv":
        yield published.load(folder)
    for base in (folder, folder / "aiconfigurator"):
        yield from aiconfigurator.load(base)
    for base in (folder, folder / "neusight", folder / "NeuSight"):
        yield from neusight.load(base)
    operators = folder / "tracelens" / "ops.parquet"
    if operators.exists():
        yield tracelens.load(operators)


def _find_slug(name: str) -> str | None:
    try:
        return load_gpu(name).slug
    except PredictorError:
        return None
