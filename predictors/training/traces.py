"""Kernels of public PyTorch profiler traces: a table of distinct kernels with their usual times, kept beside this file.

The times are facts drawn from traces in pytorch/kineto, facebookresearch/HolisticTraceAnalysis, facebookresearch/param,
AMD-AGI/TraceLens (tests/traces), amd/HPCTrainingExamples and sarchlab/triosim by scripts/tabulate_traces.py; `trace`
names the file. The jobs of docs/accuracy.md's "Whole traces" are not among them.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from predictors.kernels import MEMORY_FAMILIES

TABLE = Path(__file__).with_name("traces.parquet")
"""What the weights that ship are fitted on."""
FAMILIES = ("gemm", "conv", *MEMORY_FAMILIES)
"""Attention has measurements enough elsewhere."""
WORK = ("family", "dtype", "direction", "share", "batch", "m", "n", "k", "rows", "cols", "flops", "bytes",
        "channels", "blocks", "threads_per_block", "indexed", "across", "part")  # fmt: skip
COLUMNS = ("gpu", "trace", *WORK, "measured_us", "count")


def load(path: Path) -> pl.DataFrame:
    """The measured kernels in the columns of `predictors.kernels`, with `gpu`, `source` and `latency_us`.

    Args:
        path: the table.
    """
    rows = pl.read_parquet(path).drop("count", "trace").rename({"measured_us": "latency_us"})
    return rows.with_columns(pl.col("latency_us").cast(pl.Float64), source=pl.lit("trace"))
