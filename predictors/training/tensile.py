"""Read the rates that rocBLAS' and hipBLASLt's logic files keep of the matrix products they were tuned with.

A logic file lists sizes, each with the fastest kernel and its rate. It is read as text: YAML of 300 MB takes minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from predictors.training.aiter import TUNED

LOGIC = tuple(
    Path(prefix, library, "Tensile/Logic/asm_full")
    for prefix, library in (
        ("", "library/src/blas3"), ("", "library/src/amd_detail/rocblaslt/src"),
        ("projects/rocblas", "library/src/blas3"), ("projects/hipblaslt", "library/src/amd_detail/rocblaslt/src"),
    )
)  # fmt: skip
"""In a checkout of rocBLAS, of hipBLASLt, and of rocm-libraries, which holds both since 2025."""
_BOARDS = {"gfx908": "mi100", "gfx90a 104": "mi210", "gfx942": "mi300x"}
"""Architecture, and its compute units where the file names them -> GPU. A die of the MI250 has as many as an MI210."""
_DTYPES = {0: "fp32", 4: "fp16", 7: "bf16", 8: "int8"}
"""Tensile's number of a format -> format."""
MIN_GFLOPS = 1000.0
"""Files that count in percent of a peak have rates in GFLOP/s in between; no percentage is as large."""
HOST_TIMED_US = 25.0
"""The shortest product of most files takes 5 to 13 us, of some 31 to 39: these were timed with their launches."""
SHORT_FLOPS = 1e9
"""What such a product has at most."""
MAX_COPIED_FRACTION = 0.2
"""Of the 38 sizes of hipBLASLt's files of gfx942 in fp16 half are gfx90a's, and the other half as slow."""
_HEAD_BYTES = 8000
_GFX = re.compile(r"\b(gfx\w+)")
_UNITS = re.compile(r"CUCount: (\d+)")
_DTYPE = re.compile(r"^\s+DataType: (\d+)", re.MULTILINE)
_SIZE = re.compile(
    r"^ *(?:- )*- \[(\d+), (\d+), (\d+), (\d+)(?:, [\d, ]+)?\]\n *- \[-?\d+, ([-+.\de]+)\]", re.MULTILINE
)
_MIXED = re.compile(r"_H?[FB]8")
"""In names of files whose operands are of other formats than the arithmetic's."""


def load(folder: Path) -> Iterator[pl.DataFrame]:
    """Read the measurements in the columns of ``predictors.kernels``; nothing where the folder has none.

    Files of a new GPU often begin as copies of another's: the same rate of the same size on two GPUs is left out, and
    all of a file with many such.

    Args:
        folder: Checkout of rocBLAS or hipBLASLt.
    """
    read = [_read_file(path) for logic in LOGIC for path in sorted((folder / logic).rglob("*.yaml"))]
    if not read:
        return
    rows = pl.concat(read)
    boards = pl.col("board").n_unique().over("dtype", "batch", "m", "n", "k", "gflops")
    rows = rows.with_columns(copied=boards > 1).filter(pl.col("copied").mean().over("file") < MAX_COPIED_FRACTION)
    rows = rows.filter(~pl.col("copied"), pl.col("dtype").is_not_null())
    shortest_us, least_flops = (pl.col(name).min().over("file") for name in ("latency_us", "flops"))
    launched = (shortest_us > HOST_TIMED_US) & (least_flops < SHORT_FLOPS)
    rows = rows.with_columns(source=pl.when(launched).then(pl.lit("eager")).otherwise(pl.lit(TUNED)))
    # The launches of fp32 products are NeuSight's, of another host.
    rows = rows.filter((pl.col("source") == TUNED) | (pl.col("dtype") != "fp32"))
    yield rows.select(
        "batch", "m", "n", "k", "dtype", "source", "latency_us", family=pl.lit("gemm"), framework=pl.lit("hipblaslt"),
        gpu=pl.col("board").replace_strict(_BOARDS, default="unknown"),
    )  # fmt: skip


def _read_file(path: Path) -> pl.DataFrame:
    """Sizes with a rate. BLAS' matrices are stored by columns: its rows are the columns of ``predictors``."""
    text = path.read_text(encoding="utf-8", errors="replace")
    head = text[:_HEAD_BYTES]
    gfx, units, dtype = (pattern.search(head) for pattern in (_GFX, _UNITS, _DTYPE))
    board = " ".join(found[1] for found in (gfx, units) if found)
    kind = _DTYPES.get(int(dtype[1])) if dtype and not _MIXED.search(path.name) else None
    names = ("n", "m", "batch", "k", "gflops")
    found = pl.DataFrame(_SIZE.findall(text), schema=dict.fromkeys(names, pl.String), orient="row")
    sizes = found.select(pl.col(names).cast(pl.Float64)).filter(pl.col("gflops") >= MIN_GFLOPS)
    flops = 2 * pl.col("batch") * pl.col("m") * pl.col("n") * pl.col("k")
    return sizes.with_columns(
        pl.col(names[:-1]).cast(pl.Int64), flops=flops, latency_us=flops / pl.col("gflops") / 1e3, board=pl.lit(board),
        dtype=pl.lit(kind, pl.String), file=pl.lit(str(path)),
    )  # fmt: skip
