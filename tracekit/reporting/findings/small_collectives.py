"""Many small collectives, each of which pays the latency of its own."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import counted, duration

SMALL_BYTES = 1 << 20
MANY = 4


def find(case: Case) -> Iterator[Finding]:
    """Fires if a step has at least four collectives of one kind and group below 1 MiB, and one for all saves time.

    One in place of several is taken to last as long as the longest of them.
    """
    of_rank = ["rank"] if "rank" in case.kernels.columns else []
    alike = (*of_rank, "step", "collective", "process_group", "ranks")
    small = case.kernels.filter((pl.col("family") == "collective") & (pl.col("bytes") < SMALL_BYTES))
    many = small.filter(pl.len().over(alike) >= MANY)
    if many.is_empty():
        return
    saves_us = case.saved_by_merging(many, *alike)
    if not case.worth(saves_us):
        return
    count = counted(many.height / case.steps)
    yield Finding(
        kind="small-collectives",
        title=f"{count} collectives of less than 1 MiB take {duration(case.per_step(many))} of a step.",
        advice="Send them together: larger buckets (bucket_cap_mb), coalesced calls, flattened parameters.",
        saves_us=saves_us,
        evidence=case.evidence(many),
    )
