"""Steps that are still warming up, within those that are measured."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Evidence, Finding
from tracekit.reporting.sections.steps import measured_steps
from tracekit.units import duration

SLOW = 1.3
LEAST_STEPS = 3


def find(case: Case) -> Iterator[Finding]:
    """Fires if the first of at least three measured steps takes 30 % longer than the median of the others."""
    steps = measured_steps(case.run)
    if steps.height < LEAST_STEPS:
        return
    first_us, median_us = steps["time_ns"][0] / 1e3, float(steps["time_ns"][1:].median() or 0) / 1e3  # type: ignore[arg-type]
    if first_us < SLOW * median_us:
        return
    number = steps["step"][0]
    rows = steps.select("step", pl.col("time_ns") / 1e3).iter_rows()
    yield Finding(
        kind="warm-up",
        title=f"Step {number} takes {duration(first_us)}, the others {duration(median_us)}: it is still warming up.",
        advice=f"Measure later ones: --steps {number + 1}:{steps['step'][-1]}, or schedule(warmup=...) when recording.",
        saves_us=None,
        evidence=tuple(Evidence(f"step {step}", time_us, "") for step, time_us in rows),
    )
