"""Percent of the GPU time whose work is known."""

from dataclasses import dataclass

import polars as pl

from tracekit.workload.step_kinds import compute_time_share, compute_time_shares

# Sources of work other than the op that launched the kernel: other kernels or other ops.
INFERRED_SOURCES = ("repeat", "gradients", "model", "projection", "geometry")


@dataclass(frozen=True, slots=True)
class WorkCoverage:
    """GPU time by what is known of the work, in percent.

    Attributes:
        work: The work is known: dimensions, bytes, or a collective's message size.
        inferred: Part of ``work`` that was inferred: from the same kernel elsewhere in the trace, from the gradients
            that an all-reduce sums, or from the launch.
        family: Only the family is known.
        unknown: Not even the family is known.
    """

    work: float
    inferred: float
    family: float
    unknown: float


def build_work_coverage(kernels: pl.DataFrame) -> WorkCoverage:
    """Build the coverage of the chosen steps' kernels."""
    known, other = pl.col("work_from").is_not_null(), pl.col("family") == "other"
    work, family, unknown = compute_time_shares(kernels, "time_us", known, ~known & ~other, ~known & other)
    inferred = compute_time_share(kernels, "time_us", pl.col("work_from").is_in(INFERRED_SOURCES))
    return WorkCoverage(work=work, inferred=inferred, family=family, unknown=unknown)
