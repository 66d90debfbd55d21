"""Check whether the GPU of a trace ran at its usual clock speed."""

from dataclasses import dataclass

import polars as pl

from predictors import Gpu, predict

MIN_KERNEL_NS = 10_000
"""Least duration of the kernels that are compared.

Shorter ones are mostly launch overhead, which reveals nothing about the clock.
"""
MIN_KERNELS_PER_FAMILY = 10
MIN_FAMILIES = 3
MIN_SLOW_RATIO = 1.3
"""Least ratio of measured to modelled time that counts as slow.

A wrong latency law is off by as much for one family of kernels; for all families at once it never was at a usual clock.
"""

CHECKED_FAMILIES = ("gemm", "conv", "attention", "elementwise", "norm", "softmax", "reduction", "copy", "optimizer")


@dataclass(frozen=True, slots=True)
class ClockSpeed:
    """Measured kernel times relative to the latency laws of the same GPU.

    Attributes:
        kernel_count: Number of kernels compared.
        median_ratio: Median ratio of measured to modelled time.
        min_ratio: Least of the families' median ratios.
        max_ratio: Largest of the families' median ratios.
        families: Names of these two families.
    """

    kernel_count: int
    median_ratio: float
    min_ratio: float
    max_ratio: float
    families: tuple[str, str]

    @property
    def is_slow(self) -> bool:
        """True if every family is slow, as at a low clock."""
        return self.min_ratio >= MIN_SLOW_RATIO

    def __str__(self) -> str:
        """Return text such as ``from 1.4 (gemm) to 1.8 times (norm)``."""
        return f"from {self.min_ratio:.1f} ({self.families[0]}) to {self.max_ratio:.1f} times ({self.families[1]})"


def measure_clock_speed(kernels: pl.DataFrame, gpu: Gpu, model_us: pl.Series | None = None) -> ClockSpeed | None:
    """Measure the clock speed from kernels with recorded shapes; None where there are too few kernels or families.

    Args:
        kernels: The kernel table, as measured.
        gpu: The GPU of the trace.
        model_us: What the model alone predicts for each kernel; ``None`` to predict the kernels that count.
    """
    own_shapes = (
        (pl.col("kind") == "kernel") & (pl.col("work_from") == "shapes") & pl.col("family").is_in(CHECKED_FAMILIES)
    )
    if kernels.height < MIN_FAMILIES * MIN_KERNELS_PER_FAMILY:
        return None
    known = ["kind", "work_from", "family", "dur_ns"]
    table = kernels if model_us is None else kernels[known].hstack([model_us.alias("model_us")])
    looked_at = table.filter(own_shapes & (pl.col("dur_ns") > MIN_KERNEL_NS))
    if looked_at.height < MIN_FAMILIES * MIN_KERNELS_PER_FAMILY:
        return None
    if model_us is None:
        looked_at = looked_at.with_columns(model_us=predict(looked_at, gpu)["time_us"])
    ratios = looked_at.select("family", ratio=pl.col("dur_ns") / 1e3 / pl.col("model_us"))
    kinds = (
        ratios.group_by("family")
        .agg(pl.len(), pl.col("ratio").median())
        .filter(pl.col("len") >= MIN_KERNELS_PER_FAMILY)
    )
    if kinds.height < MIN_FAMILIES:
        return None
    ordered = kinds.sort("ratio", "family")
    (fastest, _, least), (slowest, _, most) = ordered.row(0), ordered.row(-1)
    return ClockSpeed(looked_at.height, ratios.select(pl.median("ratio")).item(), least, most, (fastest, slowest))
