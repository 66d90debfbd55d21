"""GPU time by family of kernels."""

from dataclasses import dataclass

import polars as pl

from tracekit.arrays import IN_ORDER


@dataclass(frozen=True, slots=True)
class FamilyTime:
    """GPU time of one kernel family in the median step.

    Attributes:
        family: Kernel family.
        time_us: Summed time of its kernels per step.
        share: Percent of all kernels' summed time.
        kernels: Kernels per step.
    """

    family: str
    time_us: float
    share: float
    kernels: float


def build_family_times(kernels: pl.DataFrame, steps: int) -> tuple[FamilyTime, ...]:
    """Build the families, longest first."""
    whole = kernels["time_us"].sum() or 1.0
    rows = kernels.lazy().group_by("family").agg(time=pl.col("time_us").sum(), count=pl.len())
    return tuple(
        FamilyTime(family, time / steps, 100 * time / whole, count / steps)
        for family, time, count in rows.sort("time", "family", descending=[True, False])
        .collect(engine=IN_ORDER)
        .iter_rows()
    )
