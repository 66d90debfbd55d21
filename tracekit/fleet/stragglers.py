"""Tabulate who holds up a job of many ranks: ranks, and process groups that should be equally fast."""

import polars as pl

from tracekit.analysis.waits import find_stragglers
from tracekit.comm.collective_calls import BUS_FACTOR
from tracekit.graph.ranks import Collectives
from tracekit.replay.step_time import JobSteps, StepTimes
from tracekit.run import MeasuredRun


def tabulate_stragglers(run: MeasuredRun, steps: StepTimes, job: JobSteps) -> pl.DataFrame:
    """Tabulate the ranks as :func:`find_stragglers` does, with how long each is busy without waiting."""
    table = find_stragglers(run.program)
    own = pl.DataFrame(
        {
            "rank": run.program.steps["rank"],
            "busy_us": (steps.busy_ns - steps.waiting_ns) / 1e3,
            "chosen": job.is_chosen,
        }
    )
    busy = own.filter("chosen").group_by("rank").agg(pl.col("busy_us").mean())
    return table.drop("busy_us").join(busy, on="rank", how="left", maintain_order="left")


def spread_steps(run: MeasuredRun, steps: StepTimes, job: JobSteps) -> pl.DataFrame:
    """Tabulate each step: quantiles over the ranks of the time without waiting for others, and the slowest rank."""
    spans = steps.spans
    own_us = (spans.end_ns - spans.previous_end_ns - steps.waiting_ns) / 1e3
    table = run.program.steps.select("rank", "step").with_columns(
        own_us=own_us, known=spans.has_duration, chosen=job.is_chosen
    )
    own = pl.col("own_us")
    return (
        table.filter("known", "chosen")
        .group_by("step", maintain_order=True)
        .agg(
            least_us=own.min(),
            median_us=own.median(),
            p95_us=own.quantile(0.95),
            most_us=own.max(),
            slowest=pl.col("rank").get(own.arg_max()),
        )
    )


MIN_BYTES = 1 << 20
"""Smaller messages show the latency, not the links."""
LINK_COLUMNS = {
    "group": pl.String,
    "ranks": pl.Int64,
    "first_rank": pl.Int64,
    "collectives": pl.Int64,
    "bus_gbps": pl.Float64,
    "of_median": pl.Float64,
}


def measure_links(collectives: Collectives | None) -> pl.DataFrame:
    """Measure the bus bandwidth of each process group in its large collectives, slowest first.

    Returns:
        ``group``; ``ranks`` and ``first_rank`` of it; ``collectives``, how many; ``bus_gbps``, the median bus bandwidth
        in GB/s, as nccl-tests defines it; ``of_median``, its ratio to the median of all groups of as many ranks.
    """
    if collectives is None:
        return pl.DataFrame(schema=LINK_COLUMNS)
    each = (
        collectives.table.filter(pl.col("bytes") >= MIN_BYTES, pl.col("kind").is_in(list(BUS_FACTOR)))
        .group_by("collective", "group", "kind", "bytes", maintain_order=True)
        .agg(
            pl.col("read").first(),
            first_rank=pl.col("rank").min(),
            # The rank that leaves first was not held up on its way out.
            transfer_us=pl.col("transfer_us").min(),
        )
        .filter(pl.col("transfer_us") > 0)
    )
    twice = pl.col("kind").replace_strict(BUS_FACTOR, return_dtype=pl.Float64)
    factor = pl.when(twice > 0).then(twice * (pl.col("read") - 1) / pl.col("read")).otherwise(1.0)
    rated = each.with_columns(gbps=pl.col("bytes") * factor / pl.col("transfer_us") / 1e3)
    groups = rated.group_by("group", "read", maintain_order=True).agg(
        pl.col("first_rank").min(), collectives=pl.len().cast(pl.Int64), bus_gbps=pl.col("gbps").median()
    )
    return (
        groups.with_columns(of_median=pl.col("bus_gbps") / pl.col("bus_gbps").median().over("read"))
        .select("group", pl.col("read").cast(pl.Int64).alias("ranks"), *list(LINK_COLUMNS)[2:])
        .sort("of_median", "first_rank")
    )
