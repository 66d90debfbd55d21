"""Tabulate who holds up a job of many ranks."""

import polars as pl

from tracekit.analysis.waits import find_stragglers
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
