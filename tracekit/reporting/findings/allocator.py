"""Finding: GPU memory allocated from the driver instead of the caching allocator."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from tracekit.analysis.idle_causes import IdleCause
from tracekit.graph import recorded
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding
from tracekit.trace import RankTrace
from tracekit.whatif import compute_saving_us
from tracekit.whatif.launches import compute_fraction_within, scale_lags

EXPANDABLE_CALL_PATTERN = r"^cuMem(Create|Map|Unmap|Release)$"
"""Calls of an allocator whose segments are expandable."""
ALLOCATOR_CALL_PATTERN = r"^(cuda|hip)(Malloc|Free|MallocAsync|FreeAsync)$|^cu(MemCreate|MemMap|MemUnmap|MemRelease)$"


def find_allocator_calls(context: FindingContext) -> Iterator[Finding]:
    """Find driver allocations whose removal saves at least 1 % of the step."""
    run = context.run
    calls = [_select_allocator_calls(rank) for rank in run.ranks]
    if not any(table.height for table in calls):
        return
    inside = recorded.build_spans(calls, run.program.launch_threads)
    graph = scale_lags(run.graph, 1 - compute_fraction_within(run.graph, inside))
    saves_us = compute_saving_us(run.program, replace(run.program, graph=graph))
    if not context.is_worth_reporting(saves_us):
        return
    made = context.select_in_steps(_select_allocator_calls)
    takes_us = float(made["dur_ns"].sum()) / 1e3 / context.step_count
    is_expandable = bool(made["name"].str.contains(EXPANDABLE_CALL_PATTERN).any())
    yield Finding(
        message=(told.ALLOCATOR_EXPANDABLE if is_expandable else told.ALLOCATOR)(calls_us=takes_us),
        saves_us=saves_us,
        evidence=context.list_longest_spans(made, lambda count: shown.CALL_MADE(calls=count)),
        parts=(IdleCause.ALLOCATOR.value,),
    )


def _select_allocator_calls(rank: RankTrace) -> pl.DataFrame:
    return rank.calls[rank.find_named("calls", ALLOCATOR_CALL_PATTERN)]
