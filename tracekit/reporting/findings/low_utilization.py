"""Finding: GEMMs and convolutions far below their roofline."""

from collections.abc import Iterator

import polars as pl

from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

MAX_UTILIZATION = 0.3
MIN_TIME_FRACTION = 0.03
MAX_WAVES = 3


def find_low_utilization(context: FindingContext) -> Iterator[Finding]:
    """Find GEMMs and convolutions below 30 % of their roofline, if they take at least 3 % of the step.

    The saving assumes that they reach the roofline.
    """
    if context.run.gpu is None:
        return
    tensor = pl.col("family").is_in(["gemm", "conv"])
    slow = context.kernels.filter(tensor & (pl.col("bound_us") < MAX_UTILIZATION * pl.col("time_us")))
    if context.sum_per_step_us(slow) < MIN_TIME_FRACTION * context.step_time_us:
        return
    saves_us = context.compute_saving_us(slow, slow["bound_us"])
    if not context.is_worth_reporting(saves_us):
        return
    reached = 100 * float(slow["bound_us"].sum()) / float(slow["time_us"].sum())
    waves = pl.col("blocks") / context.run.gpu.sms
    why = (
        pl.when(waves < 1)
        .then(pl.format("{} blocks for " + str(context.run.gpu.sms) + " SMs", "blocks"))
        .when((waves < MAX_WAVES) & (waves % 1 > 0))
        .then(pl.format("{} waves of blocks", waves.round(1)))
        .otherwise(pl.lit(""))
        .fill_null("")
    )
    yield Finding(
        message=told.LOW_UTILIZATION(kernels_us=context.sum_per_step_us(slow), reached_pct=reached),
        saves_us=saves_us,
        evidence=context.list_evidence(slow, why),
    )
