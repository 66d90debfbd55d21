"""Read kernels of public PyTorch profiler traces: a table of distinct kernels with median times, beside this file.

tests/validation/tabulate_traces.py extracted the times from traces in pytorch/kineto,
facebookresearch/HolisticTraceAnalysis,
facebookresearch/param, AMD-AGI/TraceLens (tests/traces), amd/HPCTrainingExamples and sarchlab/triosim; ``trace`` names
the file. The five jobs of H100 and MI300X in tests/validation/notes/whole_jobs.md are not among them.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from predictors.kernels import MEMORY_FAMILIES

TRACES_TABLE = Path(__file__).with_name("traces.parquet")
"""What the weights that ship are fitted on."""
TRACE_FAMILIES = ("gemm", "conv", *MEMORY_FAMILIES)
"""Attention has measurements enough elsewhere."""
RECORDED_TRACES = "h100-sxm_"
"""How names of our own recorded samples begin. Their products in half precision aren't fitted: of back-to-back steps on
one machine, they say that a cold start costs next to nothing, and other jobs' time on an H100 goes from 6 to 22 % too
fast in the median (five jobs, tests/validation/notes/whole_jobs.md)."""
LOOKUPS_TABLE = Path(__file__).with_name("lookups.parquet")
"""Look-ups in embedding tables (tests/validation/tabulate_lookups.py)."""
WORK_COLUMNS = ("family", "dtype", "direction", "share", "batch", "m", "n", "k", "rows", "cols", "flops", "bytes",
        "channels", "blocks", "threads_per_block", "indexed", "across", "part")  # fmt: skip
LOOKUP_COLUMNS = (*WORK_COLUMNS, "serial_clocks", "warp_clocks", "accessed_bytes", "reuse_bytes", "distinct_bytes",
        "streamed_bytes")  # fmt: skip
TRACE_COLUMNS = ("gpu", "trace", *WORK_COLUMNS, "measured_us", "count")


def load(path: Path) -> pl.DataFrame:
    """Read the measured kernels in the columns of ``predictors.kernels``, with ``gpu``, ``source`` and ``latency_us``.

    Args:
        path: The table.
    """
    half = (pl.col("family") == "gemm") & pl.col("dtype").is_in(["bf16", "fp16"])
    rows = pl.read_parquet(path).filter(~(half & pl.col("trace").str.starts_with(RECORDED_TRACES)))
    rows = rows.drop("count", "trace").rename({"measured_us": "latency_us"})
    return rows.with_columns(pl.col("latency_us").cast(pl.Float64), source=pl.lit("trace"))
