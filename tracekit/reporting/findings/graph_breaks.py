"""Compiled code in more than one piece."""

from collections.abc import Iterator

import polars as pl

from tracekit.ingest.nesting import outermost
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.trace import RankTrace
from tracekit.units import counted

REGION = r"^Torch-Compiled Region|^CompiledFunction$"
"""Ops around the pieces that torch.compile made, by today's name and by that of PyTorch 2.0."""


def find(case: Case) -> Iterator[Finding]:
    """Fires if a step runs at least two compiled regions one after another."""
    regions = outermost(case.of_steps(_regions), "rank", "pid", "tid")
    per_step = regions.height / case.steps
    if per_step < 2:
        return
    yield Finding(
        kind="graph-breaks",
        title=f"A step runs {counted(per_step)} compiled regions: its graph is broken between them.",
        advice='TORCH_LOGS="graph_breaks" tells why; torch.compile(fullgraph=True) makes breaks an error.',
        saves_us=None,
        evidence=case.most_time(regions, "times"),
    )


def _regions(rank: RankTrace) -> pl.DataFrame:
    return rank.ops.filter(pl.col("name").str.contains(REGION)).with_columns(rank=pl.lit(rank.rank or 0))
