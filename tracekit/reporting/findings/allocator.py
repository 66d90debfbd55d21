"""Memory asked of the driver, which the caching allocator should have at hand."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from tracekit.graph import spans
from tracekit.replay.whatif import saving_us
from tracekit.replay.whatif.cpu import share_within, times_factor
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.trace import RankTrace
from tracekit.units import duration

ALLOCATES = r"^(cuda|hip)(Malloc|Free|MallocAsync|FreeAsync)$|^cu(MemCreate|MemMap|MemUnmap|MemRelease)$"


def find(case: Case) -> Iterator[Finding]:
    """Fires if allocations of the driver that take no time save a hundredth of the step."""
    run = case.run
    calls = [_calls(rank) for rank in run.ranks]
    if not any(table.height for table in calls):
        return
    inside = spans.of_rows(calls, run.ranks, run.graph.nodes, run.kernels)
    graph = times_factor(run.graph, 1 - share_within(run.graph, inside))
    saves_us = saving_us(run, replace(run, graph=graph))
    if not case.worth(saves_us):
        return
    made = case.of_steps(_calls)
    takes_us = float(made["dur_ns"].sum()) / 1e3 / case.steps
    yield Finding(
        kind="allocator",
        title=f"Allocating and freeing GPU memory takes {duration(takes_us)} of a step.",
        advice="Keep shapes the same; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; no torch.cuda.empty_cache().",
        saves_us=saves_us,
        evidence=case.most_time(made, "calls"),
    )


def _calls(rank: RankTrace) -> pl.DataFrame:
    return rank.calls.filter(pl.col("name").str.contains(ALLOCATES))
