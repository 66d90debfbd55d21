"""Read the matrix products and experts that AITER was tuned with: the files of a checkout, or tables made from them.

Each row has the time of the fastest kernel that the tuner found for a shape, with caches emptied between runs. The
input is quantised already.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

TUNED = "tuned"
"""``source`` of a tuner's rows: without the launch, caches cold, each weight with many numbers of tokens."""
CONFIGS = Path("aiter/configs")
"""In a checkout: CSV files of tuned kernels, whose names tell their kind."""
_BOARDS = {"gfx942/304": "mi300x", "gfx950/256": "mi355x"}
"""Architecture and compute units -> GPU. The MI325X and the MI350X have as many, and kernels of the same files."""
_ARCHITECTURES = {304: "gfx942", 256: "gfx950"}
"""Of compute units, in files that don't name it."""
GEMM_FILES = {
    "blockscale_bpreshuffle_tuned_gemm": "fp8_block", "a8w8_blockscale_tuned_gemm": "fp8_block",
    "a4w4_blockscale_tuned_gemm": "mxfp4", "a8w8_tuned": "fp8", "a8w8_bpreshuffle_tuned_gemm": "fp8",
    "bf16_tuned": "bf16",
}  # fmt: skip
"""Part of a file's name -> format of its products, the first that matches; in those of 'fp8' each row names its own."""
EXPERT_FILES = "tuned_fmoe"
UNTUNED = ("untuned", "grouped", "mxscale", "mxfp8_tuned_gemm")
"""In names of files without times, or with scales or columns of other kinds."""

_GEMM_DTYPES = {"fp8_row": "fp8"}
"""Scheme of our table -> format."""
_ROW_DTYPES = {"torch.int8": "int8"}
"""Format of a row's weights -> format, in a file of products in 8 bits."""
_EXPERT_DTYPES = {
    "bf16 bf16 no": "bf16", "fp8 fp8 per_token": "fp8", "fp8 fp8 per_1x128": "fp8_block",
    "fp8 fp8 per_1x32": "mxfp8", "fp4 fp4 per_1x32": "mxfp4", "fp8 fp4 per_1x32": "w4a8_mxfp4_mxfp8",
    "bf16 fp4 per_1x32": "w4a16_mxfp4", "bf16 int4 per_1x32": "int4_wo",
}  # fmt: skip
"""Formats of input and weights, and granularity of the scales -> format of experts."""
_LIBRARIES = {
    "hipblaslt": r"^(?:torch|hipblaslt)$",
    "flydsl": r"^flydsl",
    "ck": r"^(?:ck|cktile)$|^moe_ck|^cktile|^a8w8_|^a4w4_|^bf16_batched",
    "aiter": r"^(?:asm|triton|opus|skinny)$|_ZN5aiter|^opus",
}
"""Library -> pattern of AITER's name of the kernel's kind, or of the kernel where it has none."""


def load(folder: Path) -> Iterator[pl.DataFrame]:
    """Read the measurements in the columns of ``predictors.kernels``; nothing where the folder has none.

    Args:
        folder: Checkout of AITER, or folder with gemm.parquet and moe.parquet.
    """
    configs = folder / CONFIGS
    if configs.is_dir():
        yield from (_read_csv(path) for path in sorted(configs.rglob("*.csv")) if _is_tuned(path))
        return
    gemm, experts = (pl.read_parquet(path) if path.exists() else None for path in _list_tables(folder))
    if gemm is not None and {"scheme", "us"} <= {*gemm.columns}:
        yield _build_products(gemm, pl.col("scheme").cast(pl.String).replace(_GEMM_DTYPES))
    if experts is not None and {"act_dtype", "us"} <= {*experts.columns}:
        yield _build_experts(experts)


def _list_tables(folder: Path) -> tuple[Path, Path]:
    return folder / "gemm.parquet", folder / "moe.parquet"


def _is_tuned(path: Path) -> bool:
    if any(word in path.name for word in UNTUNED):
        return False
    return EXPERT_FILES in path.name or any(part in path.name for part in GEMM_FILES)


def _read_csv(path: Path) -> pl.DataFrame:
    frame = pl.read_csv(path, infer_schema_length=None)
    architecture = (
        pl.col("gfx") if "gfx" in frame.columns else pl.col("cu_num").replace_strict(_ARCHITECTURES, default="")
    )
    board = pl.concat_str(architecture, pl.lit("/"), pl.col("cu_num"))
    frame = frame.with_columns(gpu=board.replace_strict(_BOARDS, default="unknown", return_dtype=pl.String))
    if EXPERT_FILES in path.name:
        names = {
            "token": "tokens", "model_dim": "hidden", "inter_dim": "inter", "expert": "experts",
            "q_dtype_a": "act_dtype", "q_dtype_w": "weight_dtype", "q_type": "quantisation", "use_g1u1": "gated",
            "kernelName1": "kernel1",
        }  # fmt: skip
        return _build_experts(frame.rename(names))
    names = {"B": "batch", "M": "m", "N": "n", "K": "k", "libtype": "library", "kernelName": "kernel"}
    frame = frame.rename(names, strict=False)
    kind = next(dtype for part, dtype in GEMM_FILES.items() if part in path.name)
    dtype = pl.lit(kind)
    if kind == "fp8" and "q_dtype_w" in frame.columns:
        dtype = pl.col("q_dtype_w").replace_strict(_ROW_DTYPES, default=kind)
    return _build_products(frame, dtype)


def _build_products(frame: pl.DataFrame, dtype: pl.Expr) -> pl.DataFrame:
    if "library" not in frame.columns:
        frame = frame.with_columns(library=pl.lit(None, pl.String))
    if "batch" not in frame.columns:
        frame = frame.with_columns(batch=pl.lit(1))
    return frame.select(
        "batch", "m", "n", "k", gpu=pl.col("gpu").cast(pl.String), source=pl.lit(TUNED), family=pl.lit("gemm"),
        dtype=dtype, framework=_identify_library(pl.col("library"), pl.col("kernel")),
        latency_us=pl.col("us").cast(pl.Float64),
    )  # fmt: skip


def _build_experts(frame: pl.DataFrame) -> pl.DataFrame:
    """Of gated layers alone: two matrices do two thirds of what a layer's shape says."""
    given, weights, scales = (_normalise(pl.col(name)) for name in ("act_dtype", "weight_dtype", "quantisation"))
    dtype = pl.concat_str(given, weights, scales, separator=" ").replace_strict(
        _EXPERT_DTYPES, default=None, return_dtype=pl.String
    )
    return frame.with_columns(dtype=dtype).filter(
        pl.col("gated").cast(pl.String) == "1", pl.col("dtype").is_not_null()
    ).select(
        "tokens", "hidden", "inter", "topk", "experts", "dtype", gpu=pl.col("gpu").cast(pl.String),
        source=pl.lit(TUNED), family=pl.lit("moe"), tp=pl.lit(1), ep=pl.lit(1), routing=pl.lit("balanced"),
        framework=_identify_library(pl.lit(None, pl.String), pl.col("kernel1")),
        latency_us=pl.col("us").cast(pl.Float64),
    )  # fmt: skip


def _normalise(name: pl.Expr) -> pl.Expr:
    """Return 'bf16', 'fp8', 'fp4' or 'int4' of PyTorch's name of a format, and 'per_1x32' of 'QuantType.per_1x32'."""
    short = {"bfloat16": "bf16", "float4_e2m1fn_x2": "fp4", "float8_e4m3fn": "fp8", "float8_e4m3fnuz": "fp8"}
    return name.cast(pl.String).str.split(".").list.last().str.to_lowercase().replace(short)


def _identify_library(kind: pl.Expr, kernel: pl.Expr) -> pl.Expr:
    """Return whose a kernel is; null where neither its kind nor its name tells it."""
    name = pl.coalesce(kind.cast(pl.String), kernel.cast(pl.String))
    return pl.coalesce(
        pl.when(name.str.contains(pattern)).then(pl.lit(library)) for library, pattern in _LIBRARIES.items()
    )
