"""How much of the GPU time has its work known."""

from dataclasses import dataclass

import polars as pl

from tracekit.workload.shares import cover, share

# Work taken from other kernels or from other ops than the one that launched the kernel.
INFERRED = ("repeat", "gradients", "projection", "geometry")


@dataclass(frozen=True, slots=True)
class WorkCoverage:
    """Shares of GPU time by what is known of the work, in percent.

    Attributes:
        work: Its work is known: dimensions, bytes, or a collective's message.
        inferred: Part of that which was taken from the same kernel elsewhere in the trace, or from the gradients that
            an all-reduce sums, or told from the launch.
        family: Only the family is known.
        unknown: Not even that.
    """

    work: float
    inferred: float
    family: float
    unknown: float


def build(kernels: pl.DataFrame) -> WorkCoverage:
    """The shares of the chosen steps' kernels."""
    known, other = pl.col("work_from").is_not_null(), pl.col("family") == "other"
    work, family, unknown = cover(kernels, "time_us", known, ~known & ~other, ~known & other)
    inferred = share(kernels, "time_us", pl.col("work_from").is_in(INFERRED))
    return WorkCoverage(work=work, inferred=inferred, family=family, unknown=unknown)
