"""FlashAttention 2 on GPUs whose matrix units it doesn't know."""

from collections.abc import Iterator

import polars as pl

from predictors.machine import machine
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration
from tracekit.workload.names.stack import for_older_units

NEWEST = "cudnn"
"""A stack that has kernels for the matrix units of every GPU."""


def find(case: Case) -> Iterator[Finding]:
    """Fires for attention over whole sequences made for an A100's units on later ones, if the model does better."""
    if case.run.gpu is None or (rate := machine(case.run.gpu).rate_on_mma) == 1:
        return
    older = case.kernels.filter(for_older_units())
    saves_us = case.saving_us(older, case.modelled_us(older.with_columns(framework=pl.lit(NEWEST))))
    if not case.worth(saves_us):
        return
    yield Finding(
        kind="older-attention",
        title=(
            f"FlashAttention 2 takes {duration(case.per_step(older))} of a step. It is written for an A100 and reaches "
            f"at most {100 * rate:.0f} % of what this GPU's tensor cores can do."
        ),
        advice=(
            "torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION), or FlashAttention 3 (Hopper) or 4 (Blackwell)."
        ),
        saves_us=saves_us,
        evidence=case.evidence(older),
    )
