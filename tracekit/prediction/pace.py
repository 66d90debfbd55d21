"""Whether the GPU of a trace ran as fast as its kind does."""

from dataclasses import dataclass

import polars as pl

from predictors import Gpu, predict

LONG_NS = 10_000
"""Shorter kernels are mostly launch, which says nothing of the clock."""
MANY = 10
KINDS = 3
SLOW = 1.3
"""A wrong law is off by as much for one kind of kernels; for all kinds at once it never was on a usual clock."""

KNOWN = ("gemm", "conv", "attention", "elementwise", "norm", "softmax", "reduction", "copy", "optimizer")


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured times over those by the law of the same GPU.

    Attributes:
        kernels: Looked at.
        typical: Median of them.
        least: Median of the kind of kernels that is least slow.
        most: Median of the kind that is slowest.
        kinds: Those two.
    """

    kernels: int
    typical: float
    least: float
    most: float
    kinds: tuple[str, str]

    @property
    def is_slow(self) -> bool:
        """Whether every kind is slow, as at a low clock."""
        return self.least >= SLOW

    def __str__(self) -> str:
        return f"from {self.least:.1f} ({self.kinds[0]}) to {self.most:.1f} times ({self.kinds[1]})"


def pace(kernels: pl.DataFrame, gpu: Gpu) -> Pace | None:
    """The pace of kernels whose own shapes were recorded; ``None`` if there are too few of too few kinds.

    Args:
        kernels: The kernel table, as measured.
        gpu: Where.
    """
    own_shapes = (pl.col("kind") == "kernel") & (pl.col("work_from") == "shapes") & pl.col("family").is_in(KNOWN)
    looked_at = kernels.filter(own_shapes & (pl.col("dur_ns") > LONG_NS))
    if looked_at.height < KINDS * MANY:
        return None
    ratios = looked_at.select("family", ratio=pl.col("dur_ns") / 1e3 / predict(looked_at, gpu)["time_us"])
    kinds = ratios.group_by("family").agg(pl.len(), pl.col("ratio").median()).filter(pl.col("len") >= MANY)
    if kinds.height < KINDS:
        return None
    ordered = kinds.sort("ratio", "family")
    (fastest, _, least), (slowest, _, most) = ordered.row(0), ordered.row(-1)
    return Pace(looked_at.height, ratios.select(pl.median("ratio")).item(), least, most, (fastest, slowest))
