"""Compare a trace's kernels with the model of their own GPU: durations below their bound, a slow clock."""

from dataclasses import dataclass

import polars as pl

from predictors import Batch, Gpu, predict
from tracekit.arrays import IN_ORDER
from tracekit.messages import Message
from tracekit.messages.traces import DURATIONS_BELOW_BOUND

TOLERANCE_US = 4.0
"""Precision of recorded times in public traces."""
MIN_RATIO = 0.8
"""Clocks above the datasheet's, and work that is known roughly, take kernels this far below their bound."""
ABSURD_RATIO = 1e-3
"""No kernel does so small a part of its op's work, whatever its family: its shapes are wrong."""
SURE_FAMILIES = ("gemm", "conv", "attention", "elementwise")
"""Families of which each kernel does all of its op's work; a norm's or a reduction's may do a part."""
MAX_CACHE_MULTIPLE = 4
"""Up to this multiple of the last-level cache, bytes may not have come from memory."""


def find_below_bound(kernels: pl.DataFrame, gpu: Gpu | None, model: pl.DataFrame | None = None) -> Message | None:
    """Describe the kernels that lasted less than their work takes at the GPU's peak; ``None`` if there is none.

    Only the work that shapes tell counts, and only memory traffic that no cache can serve; other work if it is absurd.

    ``model`` has ``work_bytes``, ``bound_us`` and ``limiter``, as the model alone says; ``None`` asks it.
    """
    if gpu is None or gpu.is_cpu or kernels.is_empty():
        return None
    if model is None:
        batch = Batch(kernels)
        model = batch.get_work(gpu).hstack(batch.on(gpu).select("bound_us", "limiter"))
    told = model[["work_bytes", "bound_us", "limiter"]]
    rows = kernels[["name", "family", "work_from", "ts_ns", "dur_ns"]].hstack(told).lazy()
    rows = rows.with_columns(time_us=pl.col("dur_ns") / 1e3)
    from_memory = pl.col("work_bytes") > MAX_CACHE_MULTIPLE * gpu.last_level_cache_bytes
    is_sure = pl.col("family").is_in(SURE_FAMILIES) & (pl.col("work_from") == "shapes")
    below = rows.filter(
        (pl.col("limiter") != "memory") | from_memory,
        pl.col("time_us") < pl.col("bound_us") * pl.when(is_sure).then(MIN_RATIO).otherwise(ABSURD_RATIO),
        pl.col("time_us") + TOLERANCE_US < pl.col("bound_us"),
    ).collect(engine=IN_ORDER)
    if below.is_empty():
        return None
    first = below.row(0, named=True)
    return DURATIONS_BELOW_BOUND(
        count=below.height,
        name=first["name"],
        under_us=first["bound_us"] - first["time_us"],
        at_us=(first["ts_ns"] - kernels["ts_ns"].min()) / 1e3,
    )


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

    ``kernels`` are as measured; ``model_us`` is what the model alone predicts for each, ``None`` to predict those that
    count.
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
