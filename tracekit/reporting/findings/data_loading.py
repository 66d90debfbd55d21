"""The program waits for its next batch."""

from collections.abc import Iterator

import polars as pl

from tracekit.graph.spans import LOADS_DATA
from tracekit.replay.whatif import prefetch
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.trace import RankTrace
from tracekit.units import duration


def find(case: Case) -> Iterator[Finding]:
    """Fires if batches that are there at once save a hundredth of the step."""
    saves_us = case.saved_by(prefetch)
    if not case.worth(saves_us):
        return
    loads = case.of_steps(_loads)
    takes_us = float(loads["dur_ns"].sum()) / 1e3 / case.steps
    yield Finding(
        kind="data-loading",
        title=f"Waiting for the data loader takes {duration(takes_us)} of a step.",
        advice="DataLoader(num_workers=..., prefetch_factor=..., persistent_workers=True), or preprocess on the GPU.",
        saves_us=saves_us,
        evidence=case.most_time(loads, "times"),
    )


def _loads(rank: RankTrace) -> pl.DataFrame:
    spans = pl.concat(table.select("name", "ts_ns", "dur_ns") for table in (rank.ops, rank.annotations))
    return spans.filter(pl.col("name").str.contains(LOADS_DATA))
