"""Finding: copies of pageable memory, which the driver first copies to a pinned buffer."""

from collections.abc import Iterator

import polars as pl

from tracekit.arrays import find_matches
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

PAGEABLE_NAME = "Pageable"


def find_pageable_copies(context: FindingContext) -> Iterator[Finding]:
    """Find pageable copies if the rate of pinned ones saves at least 1 % of the step."""
    copies = context.select_families("memcpy")
    copies = copies[find_matches(copies["name"], PAGEABLE_NAME)]
    if copies.is_empty():
        return
    saves_us = context.compute_saving_us(copies, context.get_model_us(copies))
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.PAGEABLE_COPIES(copies_us=context.sum_per_step_us(copies)),
        saves_us=saves_us,
        evidence=context.list_evidence(copies, shown.OP_LAUNCHED_AS, kernel=pl.col("name")),
    )
