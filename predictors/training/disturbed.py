"""Leave out runs that something else slowed down, by comparison with an engine's newest release.

aiconfigurator measured attention of encoders twice. On B200, GB200, H100 and H200 its older runs take 1.5 to 15 times
as long as the newest, at random between shapes that differ little, and most of the long ones do: the boards were
throttled or shared. The same library on GB300, and TensorRT-LLM 1.3.0rc10 on the B200, repeat within a few percent.
"""

from __future__ import annotations

import polars as pl

DISTURBED_LAWS = ("encoder",)
"""Laws whose older runs were disturbed. Of others, what changed between releases is the kernels (decoding with
TensorRT-LLM 1.3.0rc10 takes 1 to 30 times as long as with rc20, smoothly by shape)."""
MIN_COMPARED_US = 20.0
"""Shorter kernels differ by what a launch takes."""
NEIGHBOURS = 15
"""Kernels of nearly the same work that a kernel's slowdown is compared with."""
MAX_SCATTER = 0.05
"""A quarter of a run's slowdowns, as logarithms, may be this far from their neighbours'. Steady runs have 0.009 to
0.04, disturbed ones 0.06 to 0.6 (aiconfigurator, 15 runs)."""
RUN = ("law", "gpu", "engine", "release")
_KERNEL = ("law", "gpu", "engine", "shape", "dtype")


def find_disturbed_runs(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the disturbed runs among measured kernels.

    Args:
        rows: Kernel table with `law`, `gpu`, `shape` and `latency_us`.

    Returns:
        One row per run: ``RUN``, its ``scatter`` and its median ``slowdown`` over the engine's newest release.
    """
    served = rows.filter(pl.col("law").is_in(DISTURBED_LAWS), pl.col("release").is_not_null())
    is_newest = pl.col("release") == pl.col("release").max().over("law", "gpu", "engine")
    newest = served.filter(is_newest).group_by(_KERNEL).agg(newest_us=pl.col("latency_us").min())
    older = served.filter(~is_newest, pl.col("latency_us") > MIN_COMPARED_US).join(newest, on=_KERNEL)
    older = older.with_columns(slowdown=(pl.col("latency_us") / pl.col("newest_us")).log())
    near = pl.col("slowdown").rolling_median(NEIGHBOURS, center=True, min_samples=3).over(*RUN, "head_dim")
    apart = older.sort(*RUN, "head_dim", "work_flops").with_columns(apart=(pl.col("slowdown") - near).abs())
    runs = apart.group_by(RUN).agg(scatter=pl.col("apart").quantile(0.75), slowdown=pl.col("slowdown").median().exp())
    return runs.filter(pl.col("scatter") > MAX_SCATTER).sort(RUN)


def drop_disturbed(rows: pl.DataFrame) -> pl.DataFrame:
    """Return measured kernels without those of disturbed runs."""
    return rows.join(find_disturbed_runs(rows), on=RUN, how="anti", maintain_order="left")
