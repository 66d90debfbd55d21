"""Copies from memory that isn't pinned, which the driver first copies itself."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration

PAGEABLE = "Pageable"


def find(case: Case) -> Iterator[Finding]:
    """Fires if pageable copies at the rate of pinned ones save a hundredth of the step."""
    copies = case.kernels.filter((pl.col("family") == "memcpy") & pl.col("name").str.contains(PAGEABLE, literal=True))
    if copies.is_empty():
        return
    saves_us = case.saving_us(copies, case.modelled_us(copies))
    if not case.worth(saves_us):
        return
    yield Finding(
        kind="pageable-copies",
        title=f"Copies of pageable memory take {duration(case.per_step(copies))} of a step.",
        advice="Pin the host memory (DataLoader(pin_memory=True), Tensor.pin_memory) and copy with non_blocking=True.",
        saves_us=saves_us,
        evidence=case.evidence(copies, pl.col("name")),
    )
