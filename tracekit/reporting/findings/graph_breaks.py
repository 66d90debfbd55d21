"""Finding: compiled code in more than one piece."""

from collections.abc import Iterator

import polars as pl

from tracekit.ingest.batches import select_outermost
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import COMPILED_REGION_PATTERN, FindingContext
from tracekit.reporting.findings.finding import Finding
from tracekit.trace import RankTrace


def find_graph_breaks(context: FindingContext) -> Iterator[Finding]:
    """Find graph breaks: a step runs at least two compiled regions one after another."""
    if not context.is_compiled:
        return
    regions = select_outermost(context.select_in_steps(_select_regions), "rank", "pid", "tid")
    per_step = regions.height / context.step_count
    if per_step < 2:
        return
    yield Finding(
        message=told.GRAPH_BREAKS(regions=per_step),
        saves_us=None,
        evidence=context.list_longest_spans(regions, lambda count: shown.SPAN_RAN(times=count)),
    )


def _select_regions(rank: RankTrace) -> pl.DataFrame:
    return rank.ops[rank.find_named("ops", COMPILED_REGION_PATTERN)].with_columns(rank=pl.lit(rank.rank or 0))
