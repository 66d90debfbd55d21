"""The ids by which a call and what it launched belong together."""

import polars as pl

LAUNCHES_SEVERAL = "GraphLaunch|MultiDevice"
"""A CUDA graph, or one kernel on each of several devices (NCCL of one process, up to 2.12)."""


def told_apart(calls: pl.DataFrame, activities: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, tuple[str, ...]]:
    """Both tables without the ids that can't be right.

    A call launches one kernel, but for CUDA graphs and launches on several devices at once. An id that several kernels
    share tells nothing else: writers that have none put a constant there, and all kernels would wait for that one call
    and be its op's.

    Args:
        calls: Calls of the runtime and driver.
        activities: What ran on the GPU.

    Returns:
        The two, and what is to be said about it.
    """
    kernels = activities.filter(pl.col("kind") == "kernel")
    several = calls.filter(pl.col("name").str.contains(LAUNCHES_SEVERAL)).select("correlation")
    shared = kernels.group_by("correlation").len().filter(pl.col("len") > 1).drop_nulls("correlation")
    wrong = shared.join(calls, on="correlation", how="semi").join(several, on="correlation", how="anti")
    if wrong.is_empty():
        return calls, activities, ()
    ids = wrong["correlation"].implode()
    without = pl.when(~pl.col("correlation").is_in(ids)).then("correlation").alias("correlation")
    said = (
        f"{wrong['len'].sum():,} of {kernels.height:,} kernels share their correlation id with others that no CUDA "
        "graph launched: which call and op they are of isn't known"
    )
    return calls.with_columns(without), activities.with_columns(without), (said,)
