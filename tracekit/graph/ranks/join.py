"""When each rank came to a collective, how long it waited for the others, and how long the transfer took."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.graph.ranks.clocks import align
from tracekit.graph.ranks.match import SYNCHRONISING, match

# What is matched but can't be one collective: a rank was done before another came, or ends lie far apart.
CLOCK_ERROR_NS = 200_000
ENDS_APART = 0.5

ROOTED = "broadcast"
"""Has one rank that waits for none."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """Collectives that several of the read ranks took part in.

    Attributes:
        table: A row per rank that took part: ``collective`` (its number), ``kind``, ``bytes``, ``group``, ``size``
            (ranks of the group; null if not recorded), ``read`` (those of them that were read), ``rank``, ``row`` of
            the kernel table, ``arrival_ns`` and ``end_ns`` (from the first activity of any rank, on the first rank's
            clock), ``awaits`` (how many arrivals, in their order, its end needs), ``wait_us`` for the last of these,
            and ``transfer_us`` from then to its end.
        ahead_ns: How far each rank's clock is ahead of the first one's, where that is known.
        doubts: What disagrees between ranks and was therefore not joined, a sentence each.
    """

    table: pl.DataFrame
    ahead_ns: Mapping[int, int]
    doubts: tuple[str, ...]


def join(kernels: pl.DataFrame) -> Collectives:
    """Join the ranks at their collectives.

    Args:
        kernels: The kernel tables of all ranks with a column ``rank``.
    """
    matched, doubts = match(kernels)
    roughly = _on_one_clock(matched, align(matched)).with_columns(impossible=_impossible())
    left_out = roughly.filter("impossible")["collective"].unique()
    if len(left_out):
        doubts = (*doubts, f"{len(left_out)} collectives don't coincide in time")
    possible = matched.filter(~pl.col("collective").is_in(left_out.implode()))
    ahead = align(possible)
    return Collectives(_with_waits(_on_one_clock(possible, ahead)), ahead, doubts)


def _on_one_clock(matched: pl.DataFrame, ahead_ns: Mapping[int, int]) -> pl.DataFrame:
    """What several read ranks took part in, with ``arrival_ns`` and ``end_ns`` on the first rank's clock."""
    ahead = pl.col("rank").replace_strict(dict(ahead_ns), default=0, return_dtype=pl.Int64)
    return (
        matched.with_columns(pl.col("start_ns", "end_ns") - ahead, read=pl.len().over("collective"))
        .filter(pl.col("read") > 1)
        .rename({"start_ns": "arrival_ns"})
    )


def _impossible() -> pl.Expr:
    first_end, last_end = pl.col("end_ns").min(), pl.col("end_ns").max()
    shortest = (pl.col("end_ns") - pl.col("arrival_ns")).min()
    apart = (last_end - first_end) > CLOCK_ERROR_NS + ENDS_APART * shortest
    disjoint = pl.col("arrival_ns").max() > first_end + CLOCK_ERROR_NS
    return pl.col("kind").is_in(SYNCHRONISING) & (apart | disjoint).over("collective")


def _with_waits(table: pl.DataFrame) -> pl.DataFrame:
    """``table`` with ``awaits``, ``wait_us`` and ``transfer_us``.

    In a collective of a synchronising kind every rank awaits every arrival. In others a rank awaits those that came
    before its own end, and the root of a broadcast, the rank that ends first, none.
    """
    ordered = table.sort("collective", "arrival_ns", "rank")
    is_root = (pl.col("kind") == ROOTED) & (pl.col("end_ns") == pl.col("end_ns").min().over("collective"))
    awaited = (
        ordered.join(_came_before_its_end(ordered), on="row", how="left", maintain_order="left")
        .with_columns(place=pl.int_range(1, pl.len() + 1).over("collective"))
        .with_columns(awaits=pl.when(is_root).then(0).otherwise(pl.coalesce("before", "read")).cast(pl.Int64))
    )
    last = awaited.select("collective", awaits="place", last_ns="arrival_ns")
    joined = awaited.join(last, on=["collective", "awaits"], how="left", maintain_order="left")
    from_ns = pl.min_horizontal(pl.max_horizontal("arrival_ns", "last_ns"), "end_ns")
    return joined.with_columns(
        wait_us=(from_ns - pl.col("arrival_ns")) / 1e3, transfer_us=(pl.col("end_ns") - from_ns) / 1e3
    ).select(
        "collective", "kind", "bytes", "group", "size", "read", "rank", "row", "arrival_ns", "end_ns", "awaits",
        "wait_us", "transfer_us",
    )  # fmt: skip


def _came_before_its_end(ordered: pl.DataFrame) -> pl.DataFrame:
    """Where not all need all, the arrivals that each rank could have awaited, its own counted: ``row``, ``before``."""
    one_sided = ordered.filter(~pl.col("kind").is_in(SYNCHRONISING))
    pairs = one_sided.select("collective", "row", "end_ns").join(
        one_sided.select("collective", "arrival_ns"), on="collective"
    )
    return pairs.group_by("row").agg(before=(pl.col("arrival_ns") <= pl.col("end_ns")).sum())
