"""Finding: many small collectives, each with its own latency."""

from collections.abc import Iterator

import polars as pl

from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

MAX_SMALL_BYTES = 1 << 20
MIN_COLLECTIVES = 4


def find_small_collectives(context: FindingContext) -> Iterator[Finding]:
    """Find steps with four or more collectives of one kind and group below 1 MiB, if merging them saves time.

    The merged collective is assumed to take as long as the longest of them.
    """
    alike = ("rank", "step", "collective", "process_group", "ranks")
    collectives = context.select_families("collective")
    if collectives.is_empty():
        return
    many = collectives.filter(pl.col("bytes") < MAX_SMALL_BYTES).filter(pl.len().over(alike) >= MIN_COLLECTIVES)
    if many.is_empty():
        return
    saves_us = context.compute_merge_saving_us(many, *alike)
    if not context.is_worth_reporting(saves_us):
        return
    per_step = many.height / context.step_count
    yield Finding(
        message=told.SMALL_COLLECTIVES(collectives=per_step, collectives_us=context.sum_per_step_us(many)),
        saves_us=saves_us,
        evidence=context.list_evidence(many),
    )
