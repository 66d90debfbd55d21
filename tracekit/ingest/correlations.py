"""Correlation ids, which join a call to the work that it launched."""

import polars as pl

MULTI_LAUNCH_CALLS = "GraphLaunch|MultiDevice"
"""Calls that launch several kernels: a CUDA graph, or one kernel on each of several devices (NCCL up to 2.12)."""


def drop_ambiguous_correlations(
    calls: pl.DataFrame, activities: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, tuple[str, ...]]:
    """Drop correlation ids that cannot be right from both tables.

    A call launches one kernel, except for CUDA graphs and launches on several devices at once. Any other id shared by
    several kernels is meaningless: some writers put a constant there. All its kernels would wait for that one call and
    belong to its op.

    Args:
        calls: Calls of the runtime and driver.
        activities: GPU activities.

    Returns:
        Both tables, and warnings.
    """
    kernels = activities.filter(pl.col("kind") == "kernel")
    several = calls.filter(pl.col("name").str.contains(MULTI_LAUNCH_CALLS)).select("correlation")
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
