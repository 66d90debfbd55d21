"""Find stragglers: how long each rank waited in collectives, and how much later than all others it arrived."""

import polars as pl

from tracekit.graph.ranks import Collectives
from tracekit.program import Program

STRAGGLER_COLUMNS = {
    "rank": pl.Int64,
    "busy_us": pl.Float64,
    "wait_us": pl.Float64,
    "last_share": pl.Float64,
    "held_up_us": pl.Float64,
    "clock_ahead_us": pl.Float64,
}


def find_stragglers(program: Program) -> pl.DataFrame:
    """Tabulate the measured ranks in a mean step; empty for one rank.

    Returns:
        ``rank``; ``busy_us``, summed time of its kernels without waiting; ``wait_us``, waiting for other ranks in
        collectives; ``last_share``, fraction of its collectives at which it arrived last; ``held_up_us``, by how much
        it was then later than all others, summed: the most that the job could save if only this rank arrived earlier;
        ``clock_ahead_us``, how far its clock was ahead of the first rank's (null if no collective shows it).
    """
    if program.collectives is None:
        return pl.DataFrame(schema=STRAGGLER_COLUMNS)
    steps = program.chosen_steps.group_by("rank").agg(steps=pl.len())
    work = program.kernels.filter(program.is_in_chosen_steps).group_by("rank").agg(busy_us=pl.col("dur_ns").sum() / 1e3)
    ahead = program.collectives.clock_offset_ns
    clocks = {"rank": list(ahead), "clock_ahead_us": [ns / 1e3 for ns in ahead.values()]}
    per_rank = (
        steps.join(work, on="rank", how="left")
        .join(_summarize_arrivals(program), on="rank", how="left")
        .join(pl.DataFrame(clocks, schema_overrides={"rank": pl.Int64, "clock_ahead_us": pl.Float64}), "rank", "left")
        .with_columns(pl.col("busy_us", "wait_us", "held_up_us").fill_null(0.0) / pl.col("steps"))
    )
    return per_rank.select(list(STRAGGLER_COLUMNS)).with_columns(pl.col("last_share").fill_null(0.0)).sort("rank")


def _summarize_arrivals(program: Program) -> pl.DataFrame:
    """Summarize each rank's collectives in the chosen steps: ``wait_us``, ``last_share``, ``held_up_us``."""
    assert program.collectives is not None
    table = program.collectives.table.filter(program.is_in_chosen_steps.gather(program.collectives.table["row"]))
    arrival = pl.col("arrival_ns")
    second = arrival.top_k(2).min().over("collective")
    is_last = arrival == arrival.max().over("collective")
    return (
        table.with_columns(last=is_last, later=pl.when(is_last).then(arrival - second).otherwise(0))
        .group_by("rank")
        .agg(pl.col("wait_us").sum(), last_share=pl.col("last").mean(), held_up_us=pl.col("later").sum() / 1e3)
    )


def find_arrival_skews(collectives: Collectives) -> pl.DataFrame:
    """Tabulate how long after the first rank the last one arrived at a collective.

    Returns:
        ``kernel``, a row of the kernel table, and ``skew_ns``; nothing of kernels at which no read ranks meet.
    """
    arrival = pl.col("arrival_ns")
    skew = (arrival.max() - arrival.min()).over("collective")
    return collectives.table.select(kernel=pl.col("row").cast(pl.Int64), skew_ns=skew)
