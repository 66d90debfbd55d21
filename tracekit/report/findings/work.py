"""Kernels faster than their bound: our count of their work is wrong, or their data was in the L2 cache."""

from collections.abc import Iterator

import polars as pl

from tracekit.replay.run import Run
from tracekit.report.model import Finding

TOLERANCE = 1.02


def find(run: Run, kernels: pl.DataFrame) -> Iterator[Finding]:
    """Fires if any kernel beats its roofline bound by more than 2 %."""
    beaten = kernels.filter(pl.col("bound_us") > TOLERANCE * pl.col("time_us"))
    if beaten.is_empty():
        return
    share = 100 * beaten["time_us"].sum() / kernels["time_us"].sum()
    families = ", ".join(sorted(beaten["family"].unique().to_list()))
    yield Finding(
        title=f"{beaten.height:,} kernels ({share:.1f} % of GPU time: {families}) run faster than their bound.",
        advice="They read from the L2 cache, or tracekit overestimates their work; their times are kept as measured.",
        saves_us=None,
    )
