"""GEMMs and convolutions far below their roofline."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration, percent

LOW = 0.3
MUCH_TIME = 0.03
FEW_WAVES = 3


def find(case: Case) -> Iterator[Finding]:
    """Fires if those below 30 % of their roofline take 3 % of the step; the saving is what the roofline allows."""
    if case.run.gpu is None:
        return
    tensor = pl.col("family").is_in(["gemm", "conv"])
    slow = case.kernels.filter(tensor & (pl.col("bound_us") < LOW * pl.col("time_us")))
    if case.per_step(slow) < MUCH_TIME * case.step_time_us:
        return
    saves_us = case.saving_us(slow, slow["bound_us"])
    if not case.worth(saves_us):
        return
    reached = 100 * float(slow["bound_us"].sum()) / float(slow["time_us"].sum())
    waves = pl.col("blocks") / case.run.gpu.sms
    why = (
        pl.when(waves < 1)
        .then(pl.format("{} blocks for " + str(case.run.gpu.sms) + " SMs", "blocks"))
        .when((waves < FEW_WAVES) & (waves % 1 > 0))
        .then(pl.format("{} waves of blocks", waves.round(1)))
        .otherwise(pl.lit(""))
        .fill_null("")
    )
    yield Finding(
        kind="low-utilization",
        title=(
            f"GEMMs and convolutions of {duration(case.per_step(slow))} per step reach only "
            f"{percent(reached)} of what the GPU allows."
        ),
        advice="They are too small or too thin to fill it: a larger batch, batched or grouped GEMMs, other layouts.",
        saves_us=saves_us,
        evidence=case.evidence(slow, why),
    )
