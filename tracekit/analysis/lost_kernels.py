"""Count kernel launches whose kernels the profiler lost."""

import polars as pl

from tracekit.trace import RankTrace

# Calls that launch a kernel, to find launches without one. Launches and kernels are otherwise linked by correlation ID.
KERNEL_LAUNCH_PATTERN = r"^((cuda|cu|hip)\w*Launch\w*Kernel|(cuda|cu|hip)GraphLaunch)"
CAPTURE_CALL_PATTERN = r"StreamBeginCapture|StreamEndCapture"


def count_lost_launches(rank: RankTrace) -> tuple[int, int]:
    """Return the number of launches without a kernel in the trace, and the number of all launches.

    Launches into a graph that is being captured start no kernel and don't count.
    """
    launches = rank.calls.filter(pl.col("name").str.contains(KERNEL_LAUNCH_PATTERN)).drop_nulls("correlation")
    capture = rank.calls.filter(pl.col("name").str.contains(CAPTURE_CALL_PATTERN))
    begins = capture.select("ts_ns", capturing=pl.col("name").str.contains("Begin"))
    found = launches.join_asof(begins, on="ts_ns", check_sortedness=False)
    launching = found.filter(~pl.col("capturing").fill_null(False))
    return launching.join(rank.activities, on="correlation", how="anti").height, launching.height
