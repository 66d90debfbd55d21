"""Finding: collectives that nothing overlaps."""

from collections.abc import Iterator

import polars as pl

from tracekit.format import format_duration, format_percent
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

MIN_EXPOSED_FRACTION = 0.05
OVERLAP_ADVICE = "Overlap them with compute (bucket sizes, prefetch), or look for a rank that comes late."
HOST_BOUND_ADVICE = "Without them the step would be as long: the CPU is the limit. Shorten its work first."


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
    yield Finding(
        kind="exposed-communication",
        title=f"Collectives run alone for {format_duration(exposed_us)}, {format_percent(100 * part)} of the step.",
        advice=OVERLAP_ADVICE if context.is_worth_reporting(saves_us) else HOST_BOUND_ADVICE,
        saves_us=saves_us,
        evidence=context.list_evidence(collectives),
    )
