"""Finding: FlashAttention 2 on GPUs whose matrix units it doesn't support."""

from collections.abc import Iterator

import polars as pl

from predictors.hardware import derive_hardware
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding
from tracekit.workload.names.library import is_ampere_attention

NEWEST_STACK = "cudnn"
"""A framework with kernels for the matrix units of every GPU."""


def find_older_attention(context: FindingContext) -> Iterator[Finding]:
    """Find attention over whole sequences written for an A100's matrix units on a later GPU, if the model is faster."""
    if context.run.gpu is None or (rate := derive_hardware(context.run.gpu).mma_rate_fraction) == 1:
        return
    older = context.kernels.filter(is_ampere_attention())
    if older.is_empty():
        return
    saves_us = context.compute_saving_us(
        older, context.predict_on_source_us(older.with_columns(framework=pl.lit(NEWEST_STACK)))
    )
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.OLDER_ATTENTION(kernels_us=context.sum_per_step_us(older), rate_pct=100 * rate),
        saves_us=saves_us,
        evidence=context.list_evidence(older),
    )
