"""Read NeuSight's operator measurements (fp32, launch included): the files of a checkout, or tables made from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

DATA_FOLDER = Path("scripts/asplos/data")
"""In a checkout: dataset[_amd]/train/collect/OP/TORCH/GPU.csv and dataset[_amd]/test/OP.csv, `Latency` in ms."""
UNARY_OPS = ("addu", "divu", "gelu", "mulu", "powu", "relu", "tanh")
BINARY_OPS = ("add", "div", "mul", "pow")

_OP_CLASSES = {
    **dict.fromkeys(UNARY_OPS, "elem_unary"), **dict.fromkeys(BINARY_OPS, "elem_binary"), "linear": "linear",
    "bmm": "bmm",
    "conv": "conv", "softmax": "softmax", "ln": "layernorm",
}  # fmt: skip
_VECTOR_FAMILIES = {
    "elem_unary": "elementwise",
    "elem_binary": "elementwise",
    "softmax": "softmax",
    "layernorm": "norm",
}
_TEST_FILES = ("bmm", "linear", "elem", "ln", "softmax")
_FP32_BYTES = 4
_COLUMNS = ("gpu", "op_class", "latency_us", "flops", "bytes", "B", "H", "m", "n", "k", "channels", "height")


def load(folder: Path) -> Iterator[pl.DataFrame]:
    """Read the measurements in the columns of ``predictors.kernels``, one frame per kind of kernel.

    Args:
        folder: Checkout, or folder of our tables (kernels.parquet, kernels_extra.parquet).
    """
    frames = _read_checkout(folder / DATA_FOLDER) if (folder / DATA_FOLDER).is_dir() else _read_tables(folder)
    if not frames:
        return
    rows = pl.concat(frames, how="diagonal_relaxed").with_columns(source=pl.lit("eager"), dtype=pl.lit("fp32"))
    rows = rows.filter(~_is_unlike_jobs())
    common = ("gpu", "source", "dtype", "latency_us")
    yield rows.filter(pl.col("op_class").is_in(["linear", "bmm"])).select(
        *common, "m", "n", "k", family=pl.lit("gemm"),
        batch=pl.when(pl.col("op_class") == "bmm").then("B").otherwise(1),
    )  # fmt: skip
    yield rows.filter(pl.col("op_class").is_in(list(_VECTOR_FAMILIES))).select(
        *common, "flops", "bytes", family=pl.col("op_class").replace(_VECTOR_FAMILIES), rows="B", cols="H"
    )
    yield rows.filter(pl.col("op_class") == "conv").select(
        *common,
        "bytes",
        "m",
        "n",
        "k",
        "channels",
        "height",
        family=pl.lit("conv"),
        direction=pl.lit("forward"),
        batch=pl.lit(1),
        width="height",
    )


def _is_unlike_jobs() -> pl.Expr:
    """Whether rows say less of jobs on their GPU than the fit knows without them.

    - The P4 (75 W) throttles on long GEMMs: efficiency falls threefold with run length.
    - So does the L4 (72 W), at any size: with its operators in the fit, NeuSight's whole models on it are 12 % off, for
      7 % without.
    - The H100's vector operators are few sizes, launched eagerly. With them its kernels of traces are 6 % off in the
      median, for 2 % without, and norms on GPUs left out 13, for 9.
    """
    name, kind = pl.col("gpu"), pl.col("op_class")
    throttled = (name == "Tesla P4") & (kind == "linear") & (pl.col("flops") > 3e9)
    return throttled | (name == "NVIDIA L4") | ((name == "NVIDIA H100 80GB HBM3") & kind.is_in(list(_VECTOR_FAMILIES)))


def _read_tables(folder: Path) -> list[pl.DataFrame]:
    tables = ("kernels", "kernels_extra", "kernels_test")
    paths = [path for name in tables if (path := folder / f"{name}.parquet").exists()]
    conv = pl.col("op_class") == "conv"
    filters = pl.col("Cin") * pl.col("Cout")
    pixels = (pl.col("flops") / (2 * pl.col("ksize") ** 2 * filters)).round().cast(pl.Int64)
    return [
        pl.read_parquet(path)
        .with_columns(
            bytes="min_bytes",
            m=pl.when(conv).then(pixels).otherwise("gemm_m"),
            n=pl.when(conv).then("Cout").otherwise("gemm_n"),
            k=pl.when(conv).then(pl.col("Cin") * pl.col("ksize") ** 2).otherwise("gemm_k"),
            channels="Cin",
            height=(pl.col("in_hw") + 2 * pl.col("pad") - pl.col("ksize")) // pl.col("stride") + 1,
        )
        .select(_COLUMNS)
        for path in paths
    ]


def _read_checkout(data: Path) -> list[pl.DataFrame]:
    paths = sorted(data.glob("dataset*/*/collect/*/*/*.csv"))
    paths += [path for path in sorted(data.glob("dataset*/test/*.csv")) if path.stem in _TEST_FILES]
    return [_read_file(path) for path in paths]


def _read_file(path: Path) -> pl.DataFrame:
    frame = pl.read_csv(path, infer_schema_length=None)
    rows = frame.select(
        pl.col("^(B|H|M|N|K|Input_Channel|Output_Channel|Kernel_Szie|Input_Size|Stride|Padding)$").cast(pl.Int64),
        op_class=pl.col("OPName").replace_strict(_OP_CLASSES, default=None, return_dtype=pl.String),
        gpu="Device",
        latency_us=pl.col("Latency").cast(pl.Float64) * 1e3,
    ).drop_nulls("op_class")
    work = (
        _build_conv_columns()
        if "Input_Channel" in rows.columns
        else _build_gemm_columns()
        if "M" in rows.columns
        else _build_vector_columns()
    )
    rows = rows.with_columns(work)
    return rows.select(name for name in _COLUMNS if name in rows.columns)


def _build_gemm_columns() -> list[pl.Expr]:
    """[M, N] times [N, K]: the raw N is what the sum runs over."""
    batch, m, n, k = (pl.col(name) for name in "BMKN")
    size = batch * (m * k + k * n + m * n) * _FP32_BYTES
    return [m.alias("m"), n.alias("n"), k.alias("k"), (2 * batch * m * n * k).alias("flops"), size.alias("bytes")]


def _build_conv_columns() -> list[pl.Expr]:
    batch, channels, filters, edge = (pl.col(c) for c in ("B", "Input_Channel", "Output_Channel", "Input_Size"))
    window = pl.col("Kernel_Szie")  # spelling of the files
    out = (edge + 2 * pl.col("Padding") - window) // pl.col("Stride") + 1
    m, k = batch * out**2, channels * window**2
    numel = batch * channels * edge**2 + filters * k + m * filters
    return [
        m.alias("m"), filters.alias("n"), k.alias("k"), (2 * m * filters * k).alias("flops"),
        (numel * _FP32_BYTES).alias("bytes"), channels.alias("channels"), out.alias("height"),
    ]  # fmt: skip


def _build_vector_columns() -> list[pl.Expr]:
    tensors = pl.when(pl.col("op_class") == "elem_binary").then(3).otherwise(2)
    return [(pl.col("B") * pl.col("H") * tensors * _FP32_BYTES).alias("bytes")]
