"""Kernels that lasted less than their work can take: their durations were lost, or the GPU is another one."""

import polars as pl

from predictors import Batch, Gpu
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

    Args:
        kernels: A kernel table (``schema.KERNELS``).
        gpu: The GPU that they ran on.
        model: What the model alone says of them: ``work_bytes``, ``bound_us`` and ``limiter``; ``None`` to ask it.
    """
    if gpu is None or kernels.is_empty():
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
