"""Finding: the program waits for its next batch."""

from collections.abc import Iterator

import polars as pl

from tracekit.analysis.idle_causes import IdleCause
from tracekit.graph.recorded import DATA_LOADER_RANGES
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding
from tracekit.trace import RankTrace
from tracekit.whatif import prefetch

WORKERS_ITERATOR = "_MultiProcessingDataLoaderIter"
"""Iterator of a ``DataLoader`` that has worker processes."""


def find_data_loading(context: FindingContext) -> Iterator[Finding]:
    """Find data loading, if batches without loading time save at least 1 % of the step."""
    saves_us = context.compute_edit_saving_us(prefetch)
    if not context.is_worth_reporting(saves_us):
        return
    loads = context.select_in_steps(_select_loader_spans)
    takes_us = float(loads["dur_ns"].sum()) / 1e3 / context.step_count
    has_workers = bool(loads["name"].str.contains(WORKERS_ITERATOR, literal=True).any())
    yield Finding(
        message=(told.DATA_LOADING_BY_WORKERS if has_workers else told.DATA_LOADING)(loading_us=takes_us),
        saves_us=saves_us,
        evidence=context.list_longest_spans(loads, lambda count: shown.SPAN_RAN(times=count)),
        parts=(IdleCause.DATA_LOADING.value,),
    )


def _select_loader_spans(rank: RankTrace) -> pl.DataFrame:
    found = {table: rank.find_named(table, DATA_LOADER_RANGES) for table in ("ops", "annotations")}
    return pl.concat(rank.tables[table][["name", "ts_ns", "dur_ns"]][rows] for table, rows in found.items())
