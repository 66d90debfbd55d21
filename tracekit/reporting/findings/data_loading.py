"""The program waits for its next batch."""

from collections.abc import Iterator

import polars as pl

from tracekit.graph.spans import LOADS_DATA
from tracekit.replay.whatif import prefetch
from tracekit.reporting.findings.case import Case, most_time
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration


def find(case: Case) -> Iterator[Finding]:
    """Fires if batches that are there at once save a hundredth of the step."""
    saves_us = case.saved_by(prefetch)
    if not case.worth(saves_us):
        return
    spans = pl.concat(
        table.select("name", "dur_ns") for rank in case.run.ranks for table in (rank.ops, rank.annotations)
    ).filter(pl.col("name").str.contains(LOADS_DATA))
    steps = case.run.steps.height
    yield Finding(
        kind="data-loading",
        title=f"Waiting for the data loader takes {duration(float(spans['dur_ns'].sum()) / 1e3 / steps)} of a step.",
        advice="DataLoader(num_workers=..., prefetch_factor=..., persistent_workers=True), or preprocess on the GPU.",
        saves_us=saves_us,
        evidence=most_time(spans, steps, "times"),
    )
