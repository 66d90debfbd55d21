"""Load measured kernels as one kernel table, with the additional columns ``gpu``, ``source`` and ``latency_us``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from predictors.errors import PredictorError
from predictors.gpu_names import load_gpu
from predictors.hardware import ARITHMETIC_DTYPES
from predictors.kernel_identity import IDENTITY_COLUMNS, select_stack
from predictors.kernels import TENSOR_FAMILIES
from predictors.training import (
    aiconfigurator,
    aiter,
    cudnn_frontend,
    miopen,
    neusight,
    pipeweave,
    published,
    tensile,
    tracelens,
    traces,
)
from predictors.training.quantising import subtract_quantising
from predictors.weights_file import load_hardware

COLLECTION_KEYS = ["table", "gpu", "engine", "release", "dtype"]
"""What a collection of aiconfigurator's measures as one."""
_FITTED_DTYPES = ("fp32", "tf32", "3xtf32", "bf16", "fp16", "fp8", "fp8_block", "nvfp4", "mxfp4", "mxfp8", "int8")
"""Formats of matrix products that are fitted, and of experts also those of `ARITHMETIC_DTYPES`."""
KEY_COLUMNS = (
    "source", "gpu", "table", *IDENTITY_COLUMNS, "family", "dtype", "kv_dtype", "direction", "share", "batch", "m", "n",
    "k", "rows", "cols", "flops", "bytes", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal", "window",
    "paged", "cache_width", "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "routing", "blocks",
    "threads_per_block", "indexed", "across", "channels", "height", "width", "part", "serial_clocks",
    "warp_clocks", "accessed_bytes", "reuse_bytes", "distinct_bytes", "streamed_bytes",
)  # fmt: skip


Loader = Callable[[Path], Iterator[pl.DataFrame]]


@dataclass(frozen=True)
class Source:
    """A public source of measured kernels.

    Attributes:
        load: Reads a checkout, or a folder of tables made from it, in the columns of ``predictors.kernels``; yields
            nothing from a folder that holds neither.
        licence: SPDX identifier.
        description: What was measured, and how.
        origin: Address of the git repository, or name of the package on PyPI; empty where it can't be downloaded.
        pinned: Full hash of the commit, or version of the package, that the weights are fitted on.
    """

    load: Loader
    licence: str
    description: str
    origin: str = ""
    pinned: str = ""

    @property
    def repository(self) -> str:
        """Last part of the origin, which is the name of a checkout."""
        return self.origin.rsplit("/", 1)[-1]


SOURCES: dict[str, Source] = {
    "aiconfigurator": Source(
        aiconfigurator.load, "Apache-2.0", "kernels in CUDA graphs, L2 mostly warm", "aiconfigurator-core", "0.12.0"
    ),
    "aiter": Source(
        aiter.load, "MIT", "fastest products and experts of AITER's tuner on MI300X and MI355X, caches cold",
        "https://github.com/ROCm/aiter", "e4048607a535ace3a2b51ded31b1c8c2d45c0879",
    ),
    "cudnn_frontend": Source(
        cudnn_frontend.load, "MIT", "attention of training forward and backward, one call at a time",
        "https://github.com/NVIDIA/cudnn-frontend", "3929da2ef4c1dba1bb8acb68727b9134f26f40c0",
    ),
    "miopen": Source(
        miopen.load, "MIT", "the fastest solver of each convolution on MI100, MI210, MI250X and MI300X",
        "https://github.com/ROCm/MIOpen", "2d1fd997a6fcf801ac4ca7a63e0656ef1cb9f488",
    ),
    "neusight": Source(
        neusight.load, "MIT", "fp32 operators, eager PyTorch 2.1, launch included and fitted away",
        "https://github.com/sitar-lab/NeuSight", "6945927d9afcca2b9daf021f8395e53edc5b4eef",
    ),
    "pipeweave": Source(
        pipeweave.load, "MIT", "fp8 products on H20, H100, H200 and H800, input in fp8 already: the public tables"
    ),
    "rocblas": Source(
        tensile.load, "MIT", "rates of the products that rocBLAS' kernels were chosen by",
        "https://github.com/ROCm/rocBLAS", "b520bc83fa67045bed4544f33ba83ce3a7c39c44",
    ),
    "hipblaslt": Source(
        tensile.load, "MIT", "rates of the products that hipBLASLt's kernels were chosen by",
        "https://github.com/ROCm/hipBLASLt", "7d9fb683db25941d38c5f89749a2c26acc493992",
    ),
    "tracelens": Source(
        tracelens.load, "MIT", "operators of real jobs on MI300X and H100, profiled (github.com/AMD-AGI/TraceLens)"
    ),
}  # fmt: skip
"""By name, which is that of its folder of tables."""


def load_datasets(*data: Path, gpus: Collection[str] | None = None) -> pl.DataFrame:
    """Every measured kernel under some folders.

    Args:
        data: Each a checkout of one of `SOURCES`, or a folder with such checkouts or tables made from them, by the
            names of the sources, or a wheel of aiconfigurator. What a later one measured of a GPU, engine, release and
            format replaces what an earlier one did.
        gpus: Slugs of the GPUs to load; all by default.

    Returns:
        One row per distinct kernel, its library, engine and release, and GPU: columns of the kernel table, ``gpu`` (a
        slug), ``source`` ('graph', 'trace', 'tuned', 'published' or 'rate' where the time excludes the launch, 'eager'
        where it includes it) and ``latency_us`` (median over repeats). Unknown GPUs are left out.

    Raises:
        ValueError: A folder has no measurement, or a checkout lacks its large files.
    """
    found = {folder: [_collect_times(frame, gpus) for frame in _read_frames(folder)] for folder in data}
    if empty := [str(folder) for folder, frames in found.items() if not frames]:
        raise ValueError(f"no measured kernels under {', '.join(empty)}")
    rows = pl.concat(drop_superseded(list(found.values())), how="diagonal_relaxed")
    keys = [key for key in KEY_COLUMNS if key in rows.columns]
    rows = rows.group_by(keys, maintain_order=True).agg(pl.col("times").explode())
    rows = rows.with_columns(latency_us=pl.col("times").list.median()).drop("times", "table", strict=False)
    return subtract_quantising(rows) if {"engine", "batch", "m"} <= {*rows.columns} else rows


def drop_superseded(collections: Sequence[Sequence[pl.DataFrame]]) -> list[pl.DataFrame]:
    """Leave out what a later collection measured anew: all rows of a table, GPU, engine, release and format.

    Args:
        collections: Frames of each folder, in the order in which the folders were named.
    """
    newer = pl.DataFrame(schema=dict.fromkeys(COLLECTION_KEYS, pl.String) | {"release": pl.Float64})
    kept: list[pl.DataFrame] = []
    for frames in reversed(collections):
        tables = [frame for frame in frames if {*COLLECTION_KEYS} <= {*frame.columns}]
        kept += [frame for frame in frames if not {*COLLECTION_KEYS} <= {*frame.columns}]
        kept += [frame.join(newer, on=COLLECTION_KEYS, how="anti") for frame in tables]
        newer = pl.concat([newer, *(frame.select(COLLECTION_KEYS).unique() for frame in tables)])
    return kept[::-1]


def _collect_times(frame: pl.DataFrame, gpus: Collection[str] | None) -> pl.DataFrame:
    """The times of each distinct kernel of one source; a checkout's twenty million rows together take 24 GB."""
    named = {name: find_slug(name) for name in frame["gpu"].unique().to_list()}
    slugs = {name: slug for name, slug in named.items() if slug and (gpus is None or slug in gpus)}
    narrow = (pl.col("family") == "moe") & pl.col("dtype").is_in(list(ARITHMETIC_DTYPES))
    fitted = ~pl.col("family").is_in(TENSOR_FAMILIES) | pl.col("dtype").is_in(_FITTED_DTYPES) | narrow
    rows = frame.with_columns(gpu=pl.col("gpu").replace_strict(slugs, default=None, return_dtype=pl.String))
    rows = rows.filter(pl.col("gpu").is_not_null(), fitted, pl.col("latency_us") > 0)
    if "engine" in rows.columns:
        rows = _adapt_libraries(rows)
    keys = [key for key in KEY_COLUMNS if key in rows.columns]
    return rows.group_by(keys, maintain_order=True).agg(times=pl.col("latency_us").cast(pl.Float64))


def _adapt_libraries(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the library that an engine's attention has on their GPU."""
    by_gpu = rows.with_columns(paged=pl.lit(None, pl.Boolean)).partition_by("gpu", maintain_order=True)
    adapted = (one.with_columns(framework=select_stack(load_hardware(one["gpu"][0]))) for one in by_gpu)
    return pl.concat([rows.clear(), *(one.drop("paged") for one in adapted)])


def _read_frames(folder: Path) -> Iterator[pl.DataFrame]:
    if folder.suffix == ".parquet":
        yield traces.load(folder)
    if folder.suffix == ".csv":
        yield published.load(folder)
    own = [source for name, source in SOURCES.items() if _is_named_after(folder, name, source)]
    for source in own or SOURCES.values():
        yield from source.load(folder)
    for below in sorted(folder.iterdir()) if folder.is_dir() and not own else ():
        for name, source in SOURCES.items():
            if _is_named_after(below, name, source):
                yield from source.load(below)


def _is_named_after(folder: Path, name: str, source: Source) -> bool:
    return folder.name.lower() in (name, source.repository.lower())


def find_slug(name: str) -> str | None:
    """Return the slug of a GPU of a data set; ``None`` if it isn't in the data base."""
    try:
        return load_gpu(name).slug
    except PredictorError:
        return None
