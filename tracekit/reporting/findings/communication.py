"""Finding: collectives that nothing overlaps."""

from collections.abc import Iterator

import polars as pl

from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

MIN_EXPOSED_FRACTION = 0.05


def find_exposed_communication(context: FindingContext) -> Iterator[Finding]:
    """Find exposed communication: only collectives run in at least 5 % of the step, and the step launched some."""
    exposed_us = context.run.measured_step.exposed_comm_us
    part = exposed_us / context.step_time_us
    if part < MIN_EXPOSED_FRACTION:
        return
    collectives = context.kernels.filter(pl.col("family") == "collective")
    if collectives.is_empty():
        return
    saves_us = context.compute_saving_us(collectives, 0.0)
    saves = context.is_worth_reporting(saves_us)
    message = told.EXPOSED_COMMUNICATION if saves else told.EXPOSED_COMMUNICATION_BEHIND_CPU
    yield Finding(
        message=message(exposed_us=exposed_us, exposed_pct=100 * part),
        saves_us=saves_us,
        evidence=context.list_evidence(collectives),
    )
