"""Collectives and copies with their speed, and the ranks that wait or make others wait."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import polars as pl

from predictors import Gpu
from tracekit.analysis.waits import find_arrival_skews, find_stragglers
from tracekit.arrays import IN_ORDER, Ints, mark_equal, select_table
from tracekit.comm.collective_calls import compute_bus_factor
from tracekit.format import format_clock_lead, format_percent
from tracekit.graph.ranks import Collectives
from tracekit.reporting.columns import Column
from tracekit.run import MeasuredRun

UNKNOWN_COLLECTIVE = "unknown"


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """All collectives of one kind with the same number of ranks."""

    collective: Annotated[str, Column("Its name; unknown if the trace doesn't record it.", "collective")]
    ranks: Annotated[int | None, Column("How many take part.", "ranks")]
    count: Annotated[float, Column("Launches per step.", "launches")]
    time_us: Annotated[float, Column("Summed time per step, without waiting for other ranks.", "transfer")]
    wait_us: Annotated[float, Column("Waiting for other ranks, not in the time above.", "waiting")]
    exposed_us: Annotated[float, Column("The part of it in which the GPU ran only collectives.", "exposed")]
    bytes: Annotated[float | None, Column("Size of the buffers per step, as nccl-tests counts it.", "buffers")]
    busbw_gbps: Annotated[
        float | None, Column("Bus bandwidth over that time, as nccl-tests counts it.", "bus bandwidth")
    ]
    skew_us: Annotated[float | None, Column("From the first rank's start to the last one's, in a mean launch.", "skew")]


def build_collective_times(
    kernels: pl.DataFrame, steps: int, joined: Collectives | None = None
) -> tuple[CollectiveTime, ...]:
    """Build the collectives by kind and number of ranks, longest first.

    With ``joined``, the collectives at which several ranks meet, the kernels have their rows of the kernel table as
    ``kernel``.
    """
    collectives = select_table(kernels, mark_equal(kernels["family"], "collective"))
    if collectives.is_empty():
        return ()
    unknown = pl.repeat(None, collectives.height, dtype=pl.Int64, eager=True)
    skews = None if joined is None else find_arrival_skews(joined)
    table = collectives.select(
        "dur_ns",
        "wait_ns",
        "ranks",
        "bytes",
        pl.col("collective").fill_null(UNKNOWN_COLLECTIVE),
        exposed_ns=_compute_exposed_ns(kernels, collectives),
        skew_ns=unknown
        if skews is None
        else collectives.join(skews, on="kernel", how="left", maintain_order="left")["skew_ns"],
    )
    rows = table.group_by("collective", "ranks").agg(
        count=pl.len(),
        time_ns=pl.col("dur_ns").sum(),
        wait_ns=pl.col("wait_ns").sum(),
        exposed_ns=pl.col("exposed_ns").sum(),
        skew_ns=pl.col("skew_ns").mean(),
        bytes=pl.when(pl.col("bytes").is_not_null().all()).then(pl.col("bytes").sum()),
    )
    ordered = rows.sort("time_ns", "collective", "ranks", descending=[True, False, False])
    return tuple(_make_collective_time(steps, **row) for row in ordered.iter_rows(named=True))


def _make_collective_time(
    steps: int,
    collective: str,
    ranks: int | None,
    count: int,
    time_ns: int,
    wait_ns: int,
    exposed_ns: int,
    skew_ns: float | None,
    bytes: int | None,
) -> CollectiveTime:
    factor = compute_bus_factor(collective, ranks) if ranks and collective != UNKNOWN_COLLECTIVE else None
    return CollectiveTime(
        collective=collective,
        ranks=ranks,
        count=count / steps,
        time_us=time_ns / 1e3 / steps,
        wait_us=wait_ns / 1e3 / steps,
        exposed_us=exposed_ns / 1e3 / steps,
        bytes=None if bytes is None else bytes / steps,
        busbw_gbps=None if bytes is None or factor is None or not time_ns else bytes * factor / time_ns,
        skew_us=None if skew_ns is None else skew_ns / 1e3,
    )


def _compute_exposed_ns(kernels: pl.DataFrame, collectives: pl.DataFrame) -> pl.Series:
    """Compute the part of every collective's transfer in which no kernel of another family ran on its rank."""
    end = (collectives["ts_ns"] + collectives["wait_ns"] + collectives["dur_ns"]).to_numpy()
    begin = end - collectives["dur_ns"].to_numpy()
    hidden = np.zeros(end.size, dtype=np.int64)
    times = kernels.select("family", "rank", "dur_ns", ts_ns=pl.col("ts_ns") + pl.col("wait_ns"))
    others = times.filter(pl.col("family") != "collective").sort("ts_ns")
    for mine, theirs in _split_by_rank(collectives, others):
        hidden[mine] = _compute_covered_ns(theirs, end[mine]) - _compute_covered_ns(theirs, begin[mine])
    return pl.Series(end - begin - hidden)


def _split_by_rank(collectives: pl.DataFrame, others: pl.DataFrame) -> Iterator[tuple[Ints, pl.DataFrame]]:
    """Yield for each rank its row numbers in the first table and its rows of the second."""
    for rank in collectives["rank"].unique():
        yield np.flatnonzero(collectives["rank"] == rank), others.filter(pl.col("rank") == rank)


def _compute_covered_ns(ordered: pl.DataFrame, until_ns: Ints) -> Ints:
    """Compute how long any kernel of ``ordered`` ran before each of the given times.

    Example: kernels [0, 4] and [3, 6] ran for 5 ns before t = 5 and for 6 ns before t = 9.
    """
    if ordered.is_empty():
        return np.zeros(until_ns.size, dtype=np.int64)
    start = ordered["ts_ns"].to_numpy()
    end = np.maximum.accumulate(start + ordered["dur_ns"].to_numpy())
    before = np.concatenate([start[:1], end[:-1]])
    added = np.maximum(end - np.maximum(start, before), 0)
    added[0] = end[0] - start[0]
    total = np.concatenate([[0], np.cumsum(added)])
    begun = np.searchsorted(start, until_ns, side="right")
    over = np.where(begun > 0, np.maximum(end[np.maximum(begun - 1, 0)] - until_ns, 0), 0)
    return np.asarray(total[begun] - over, dtype=np.int64)


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
    """Build the copies by kind, longest first."""
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


@dataclass(frozen=True, slots=True)
class RankTime:
    """One rank in a mean step."""

    rank: Annotated[int, Column("Its number.", "rank")]
    busy_us: Annotated[float, Column("Its kernels' summed time, without waiting for other ranks.", "busy")]
    wait_us: Annotated[float, Column("How long its collectives waited for other ranks.", "waits")]
    last: Annotated[float, Column("Percent of its collectives to which it came last.", "comes last", format_percent)]
    held_up_us: Annotated[float, Column("By how much it was then later than all others, summed.", "holds up")]
    clock_ahead_us: Annotated[
        float | None, Column("How far its clock was ahead of the first rank's.", "clock", format_clock_lead)
    ]


def build_rank_times(run: MeasuredRun) -> tuple[RankTime, ...]:
    """Build the measured ranks; empty for a run of one rank."""
    return tuple(
        RankTime(rank, busy, wait, 100 * last, held_up, ahead)
        for rank, busy, wait, last, held_up, ahead in find_stragglers(run.program).iter_rows()
    )
