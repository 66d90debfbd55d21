"""Copies and memsets by kind: their bandwidth, beside that of the link or memory that they use."""

from dataclasses import dataclass
from typing import Annotated

import polars as pl

from predictors import Gpu
from tracekit.arrays import IN_ORDER, mark_equal, select_table
from tracekit.reporting.columns import Column

MEMSET = "memset"
MEMORIES = r"\((\w+ -> \w+)\)"
"""What a copy's name says of both ends: Pinned, Pageable or Device."""
OVER_HOST_LINK, WITHIN_MEMORY = ("HtoD", "DtoH"), ("DtoD", MEMSET)
PASSES = {"DtoD": 2}
"""How often a copy's bytes pass through the GPU's memory, if more than once: read and written."""


@dataclass(frozen=True, slots=True)
class CopyTime:
    """All copies in one direction between the same kinds of memory, or all memsets."""

    kind: Annotated[str, Column("HtoD, DtoH, DtoD, PtoP or memset.", "copy")]
    memories: Annotated[str | None, Column("Both ends, where the copy's name says them.")]
    count: Annotated[float, Column("Number per step.", "number")]
    time_us: Annotated[float, Column("Summed time per step.", "time")]
    bytes: Annotated[float | None, Column("Bytes per step.", "bytes")]
    gbps: Annotated[float | None, Column("Bytes over time, in 1e9 a second.", "bandwidth")]
    low_gbps: Annotated[float | None, Column("For a tenth of the time it is at most so high.", "slow tenth")]
    high_gbps: Annotated[float | None, Column("For a tenth of the time it is at least so high.", "fast tenth")]
    limit_gbps: Annotated[
        float | None,
        Column("By datasheet: of PCI Express, the link between GPUs, or half of the memory's.", "datasheet"),
    ]


def build_copy_times(kernels: pl.DataFrame, steps: int, gpu: Gpu | None) -> tuple[CopyTime, ...]:
    """Build the copies by kind, longest first.

    Args:
        kernels: The chosen steps' kernels.
        steps: Number of these steps.
        gpu: The GPU that ran them, if known.
    """
    is_copy = ~mark_equal(kernels["kind"], "kernel")
    if not is_copy.any():
        return ()
    copied = (
        select_table(kernels, is_copy)
        .lazy()
        .select(
            "bytes",
            "dur_ns",
            kind=pl.when(pl.col("kind") == MEMSET).then(pl.lit(MEMSET)).otherwise(pl.col("copy_kind")),
            memories=pl.col("name").str.extract(MEMORIES),
            gbps=pl.when(pl.col("dur_ns") > 0).then(pl.col("bytes") / pl.col("dur_ns")),
        )
    )
    timed = pl.col("gbps").is_not_null()
    rows = (
        copied.drop_nulls("kind")
        .sort("gbps")
        .group_by("kind", "memories", maintain_order=True)
        .agg(
            count=pl.len(),
            time_ns=pl.col("dur_ns").sum(),
            bytes=pl.when(pl.col("bytes").is_not_null().all()).then(pl.col("bytes").sum()),
            low=_find_rate(timed, 0.1),
            high=_find_rate(timed, 0.9),
        )
        .sort("time_ns", "kind", "memories", descending=[True, False, False])
        .collect(engine=IN_ORDER)
    )
    return tuple(
        CopyTime(
            kind=row["kind"],
            memories=row["memories"],
            count=row["count"] / steps,
            time_us=row["time_ns"] / 1e3 / steps,
            bytes=None if row["bytes"] is None else row["bytes"] / steps,
            gbps=row["bytes"] / row["time_ns"] if row["bytes"] is not None and row["time_ns"] else None,
            low_gbps=row["low"],
            high_gbps=row["high"],
            limit_gbps=None if gpu is None else _get_limit_gbps(gpu, row["kind"]),
        )
        for row in rows.iter_rows(named=True)
    )


def _find_rate(timed: pl.Expr, part: float) -> pl.Expr:
    """Find the rate that isn't exceeded for a part of the time; rows are in order of their rate."""
    times, rates = pl.col("dur_ns").filter(timed), pl.col("gbps").filter(timed)
    return rates.filter(times.cum_sum() >= part * times.sum()).first()


def _get_limit_gbps(gpu: Gpu, kind: str) -> float | None:
    if kind in OVER_HOST_LINK:
        return gpu.pcie_gbps
    if kind in WITHIN_MEMORY:
        return gpu.bandwidth_gbps / PASSES.get(kind, 1)
    return gpu.link_gbps or gpu.pcie_gbps
