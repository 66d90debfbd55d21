"""Kernels faster than their bound: their work was overestimated, or their data was in the cache."""

from dataclasses import dataclass
from typing import Annotated

import polars as pl

from predictors import Gpu
from tracekit.arrays import IN_ORDER
from tracekit.reporting.columns import Column
from tracekit.reporting.sections.kernels import KERNEL_KEYS

BOUND_TOLERANCE = 1.02
"""Tolerance for clocks above the datasheet's, and for times in whole microseconds."""
IS_FASTER_THAN_BOUND = (
    (pl.col("time_us") > 0)
    & (pl.col("family") != "collective")
    & (pl.col("bound_us") > BOUND_TOLERANCE * pl.col("time_us"))
).fill_null(False)
"""Kernels faster than their bound; kernels with a recorded time of 0 don't count."""
MAX_CACHE_MULTIPLE = 4
"""A kernel's bytes may partly be in the last-level cache up to this multiple of its size: inputs and outputs."""


@dataclass(frozen=True, slots=True)
class KernelOverBound:
    """Launches of one kernel on one shape that are faster than their bound."""

    name: Annotated[str, Column("The kernel's name.", "kernel")]
    op: Annotated[str | None, Column("The CPU op that launches it.")]
    family: Annotated[str, Column("Kind of kernel.", "family")]
    shape: Annotated[str | None, Column("The op's input shapes, as recorded.")]
    share: Annotated[float, Column("Of all kernels' summed time, percent.", "of kernel time")]
    utilization: Annotated[float, Column("Percent of the roofline: above 100.", "% roof")]
    cached: Annotated[bool, Column("Whether its data may come from the cache; else its work is counted too high.")]


def build_kernels_over_bound(kernels: pl.DataFrame, gpu: Gpu | None) -> tuple[KernelOverBound, ...]:
    """Build the list of such kernels, longest first; empty if the GPU isn't known.

    Args:
        kernels: The chosen steps' kernels.
        gpu: The GPU that they ran on.
    """
    if gpu is None:
        return ()
    whole = kernels["time_us"].sum()
    beaten = kernels.lazy().filter(IS_FASTER_THAN_BOUND)
    in_cache = (pl.col("limiter") == "memory") & (
        pl.col("work_bytes") <= MAX_CACHE_MULTIPLE * gpu.last_level_cache_bytes
    )
    rows = (
        beaten.group_by(KERNEL_KEYS)
        .agg(time=pl.col("time_us").sum(), bound=pl.col("bound_us").sum(), cached=in_cache.all())
        .sort("time", *KERNEL_KEYS, descending=[True, *[False] * len(KERNEL_KEYS)])
        .collect(engine=IN_ORDER)
    )
    return tuple(
        KernelOverBound(
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
