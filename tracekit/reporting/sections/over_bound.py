"""Kernels that ran faster than their work allows: either it was counted too high, or their data was in the cache."""

from dataclasses import dataclass

import polars as pl

from predictors import Gpu
from tracekit.reporting.sections.kernels import ALIKE

TOLERANCE = 1.02
"""Clocks above the datasheet's, and times in whole microseconds."""
BEATEN = (
    (pl.col("time_us") > 0) & (pl.col("family") != "collective") & (pl.col("bound_us") > TOLERANCE * pl.col("time_us"))
).fill_null(False)
"""Kernels faster than their bound; one that was too short to be timed says nothing."""
CACHED = 4
"""Up to how many times the last-level cache a kernel's bytes may partly be in it: what it reads and what it writes."""


@dataclass(frozen=True, slots=True)
class OverBound:
    """Launches of one kernel on one shape that beat their bound.

    Attributes:
        name: The kernel's name.
        op: The op that launches it.
        family: Its family.
        shape: The op's input shapes, as recorded.
        share: Of all kernels' summed time, percent.
        utilization: Bound over time, percent.
        cached: Whether its bytes may have been in the last-level cache; else the work is counted too high.
    """

    name: str
    op: str | None
    family: str
    shape: str | None
    share: float
    utilization: float
    cached: bool


def build(kernels: pl.DataFrame, gpu: Gpu | None) -> tuple[OverBound, ...]:
    """Such kernels, longest first; none if the GPU isn't known.

    Args:
        kernels: The chosen steps' kernels.
        gpu: That they ran on.
    """
    if gpu is None:
        return ()
    whole = kernels["time_us"].sum()
    beaten = kernels.filter(BEATEN)
    in_cache = (pl.col("limiter") == "memory") & (pl.col("work_bytes") <= CACHED * gpu.last_level_cache_bytes)
    rows = (
        beaten.group_by(ALIKE)
        .agg(time=pl.col("time_us").sum(), bound=pl.col("bound_us").sum(), cached=in_cache.all())
        .sort("time", *ALIKE, descending=[True, *[False] * len(ALIKE)])
    )
    return tuple(
        OverBound(
            name=row["name"],
            op=row["op"],
            family=row["family"],
            shape=row["input_dims"],
            share=100 * row["time"] / whole,
            utilization=100 * row["bound"] / row["time"],
            cached=bool(row["cached"]),
        )
        for row in rows.iter_rows(named=True)
    )
