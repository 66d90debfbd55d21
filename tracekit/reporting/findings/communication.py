"""Collectives that nothing overlaps."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration, percent

WORTH_TELLING = 0.05
ADVICE = "Overlap them with compute (bucket sizes, prefetch), or look for a rank that comes late."
HOST_FIRST = "Without them the step would be as long: the CPU is the limit. Shorten its work first."


def find(case: Case) -> Iterator[Finding]:
    """Fires if only collectives run in at least a twentieth of the step, and the step launched some."""
    exposed_us = case.run.measured.exposed_comm_us
    part = exposed_us / case.step_time_us
    if part < WORTH_TELLING:
        return
    collectives = case.kernels.filter(pl.col("family") == "collective")
    if collectives.is_empty():
        return
    saves_us = case.saving_us(collectives, 0.0)
    yield Finding(
        kind="exposed-communication",
        title=f"Collectives run alone for {duration(exposed_us)}, {percent(100 * part)} of the step.",
        advice=ADVICE if case.worth(saves_us) else HOST_FIRST,
        saves_us=saves_us,
        evidence=case.evidence(collectives),
    )
