"""Read PipeWeave's public measurements: fp8 matrix products on H20, H100, H200 and H800.

No engine ran them: the input is in fp8 already. H20 and H200 stand for those of 96 and 141 GB, H100 and H800 for the
SXM boards, by the rates that they reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

GEMM_TABLE = "gemm_fp8.parquet"
_BOARDS = {
    "NVIDIA H20": "h20", "NVIDIA H100": "h100-sxm", "NVIDIA H200": "h200-sxm", "NVIDIA H800": "h800-sxm"
}  # fmt: skip


def load(folder: Path) -> Iterator[pl.DataFrame]:
    """Read the measurements in the columns of ``predictors.kernels``; nothing where the folder has none."""
    if not (folder / GEMM_TABLE).exists():
        return
    table = pl.read_parquet(folder / GEMM_TABLE)
    yield table.select(
        *("m", "n", "k", "latency_us"), gpu=pl.col("hardware").replace_strict(_BOARDS), source=pl.lit("graph"),
        family=pl.lit("gemm"), dtype=pl.lit("fp8"), batch=pl.lit(1), framework=pl.lit("benchmark"),
    )  # fmt: skip
