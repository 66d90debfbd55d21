"""Optimizer steps of many passes over the parameters, where a fused one makes one."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import counted, duration

ADAM = r"_foreach_addcdiv_"
"""The op that ends every Adam step of foreach; it reads three tensors and writes one."""
ADAM_PASSES = 4
FUSED_PASSES = 7
"""A fused Adam reads parameters, gradients and both moments, and writes all of them but the gradients."""


def find(case: Case) -> Iterator[Finding]:
    """Fires if a fused Adam, which moves all state once at the same rate, saves a hundredth of the step."""
    passes = case.kernels.filter((pl.col("family") == "optimizer") & pl.col("op").str.contains("_foreach_"))
    last = passes.filter(pl.col("op").str.contains(ADAM))
    moved = passes["work_bytes"].sum()
    if last.is_empty() or not moved:
        return
    fused = FUSED_PASSES / ADAM_PASSES * float(last["work_bytes"].sum()) / float(moved)
    saves_us = case.saving_us(passes, passes["time_us"] * min(fused, 1.0))
    if not case.worth(saves_us):
        return
    count = counted(passes.height / case.steps)
    yield Finding(
        kind="unfused-optimizer",
        title=f"The optimizer takes {duration(case.per_step(passes))} of a step in {count} kernels.",
        advice="torch.optim.AdamW(..., fused=True) reads and writes each parameter's state once.",
        saves_us=saves_us,
        evidence=case.evidence(passes),
    )
