"""How fast GPUs multiply large square matrices, by people who published it: a table kept beside this file.

TFLOP/s of `torch.mm` on one GPU, the best of several sizes from 1,024 to 10,240 for each format. Source 'svcfusion':
zzc0721/torch-performance-test-data at 9d828276, database.md and issues 126, 131, 160, 162, 184, 185 and 195 (30
products timed by events; the median where several people published a GPU). Source 'chsasank':
chsasank/device-benchmarks, README.md (ten products, each timed by the host). Laptops, overclocked and rebuilt boards
are left out, GPUs that are a measured one by another name, and what is above the printed peak of no GeForce.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

TABLE = Path(__file__).with_name("published.csv")
"""What the weights that ship are fitted on, beside measured kernels."""
SIDE = 8192
"""Rows, columns and depth of the product that a figure is taken for: near the best size of most GPUs."""
SOURCE = "rate"
"""`source` of these rows: GPUs that were idle before, and so cool."""


def load(path: Path) -> pl.DataFrame:
    """The products in the columns of `predictors.kernels`, with `gpu`, `source` and `latency_us`.

    Args:
        path: the table.
    """
    return pl.read_csv(path, schema_overrides={"tflops": pl.Float64}).select(
        "gpu",
        "dtype",
        family=pl.lit("gemm"),
        source=pl.lit(SOURCE),
        **{side: pl.lit(SIDE) for side in ("m", "n", "k")},
        batch=pl.lit(1),
        latency_us=2.0 * SIDE**3 / pl.col("tflops") / 1e6,
    )
