"""Collectives that nothing overlaps."""

from collections.abc import Iterator

import polars as pl

from tracekit.replay.run import Run
from tracekit.reporting.findings.model import Finding

WORTH_TELLING = 0.05


def find(run: Run, kernels: pl.DataFrame) -> Iterator[Finding]:
    """Fires if only collectives run in at least a twentieth of the step."""
    exposed_us = run.measured.exposed_comm_us
    part = exposed_us / run.measured.step_time_us
    if part < WORTH_TELLING:
        return
    yield Finding(
        title=f"Collectives run alone for {exposed_us / 1e3:.3g} ms, {100 * part:.0f} % of the step.",
        advice="Overlap them with compute (bucket sizes, prefetch), or look for a rank that comes late.",
        saves_us=exposed_us,
    )
