"""Launches whose kernels the profiler lost."""

import polars as pl

from tracekit.trace import RankTrace

# What launches a kernel, to find launches whose kernel is missing; which call launched a kernel is told by correlation.
LAUNCHES = r"^((cuda|cu|hip)\w*Launch\w*Kernel|(cuda|cu|hip)GraphLaunch)"
CAPTURE = r"StreamBeginCapture|StreamEndCapture"


def without_kernel(rank: RankTrace) -> tuple[int, int]:
    """How many launches have no kernel in the trace, and how many there are.

    Those into a graph that is being captured launch nothing, and don't count.
    """
    launches = rank.calls.filter(pl.col("name").str.contains(LAUNCHES)).drop_nulls("correlation")
    capture = rank.calls.filter(pl.col("name").str.contains(CAPTURE))
    begins = capture.select("ts_ns", capturing=pl.col("name").str.contains("Begin"))
    found = launches.join_asof(begins, on="ts_ns", check_sortedness=False)
    launching = found.filter(~pl.col("capturing").fill_null(False))
    return launching.join(rank.activities, on="correlation", how="anti").height, launching.height
