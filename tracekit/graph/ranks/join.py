"""When each rank arrived at a collective, how long it waited for the other ranks, and how long the transfer took.

Semantics: in synchronising collectives no rank ends before all have arrived. Heuristic: the limits of what can be one
collective in time, and which arrivals the ranks of other collectives needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.graph.ranks.clocks import align_clocks
from tracekit.graph.ranks.match import SYNCHRONISING_KINDS, match_collectives
from tracekit.messages import Message
from tracekit.messages.requests import COLLECTIVES_APART
from tracekit.rules import NO_RULES, RuleNames

# Limits of what can be one collective: no rank ends before another arrives, and ends do not lie far apart.
MAX_CLOCK_ERROR_NS = 200_000
MAX_END_SPREAD_FRACTION = 0.5

ROOTED_KIND = "broadcast"
"""Collective with one rank, the root, that waits for none."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """Collectives in which several of the read ranks took part.

    Attributes:
        table: A row per rank that took part: ``collective`` (its number), ``kind``, ``bytes``, ``group``, ``size``
            (ranks of the group; null if not recorded), ``read`` (how many of them were read), ``rank``, ``row`` of the
            kernel table, ``arrival_ns`` and ``end_ns`` (from the first activity of any rank, on the first rank's
            clock), ``awaits`` (how many arrivals, in order, its end needs), ``wait_us`` for the last of these, and
            ``transfer_us`` from then to its end.
        clock_offset_ns: How far each rank's clock is ahead of the first rank's, where known.
        mismatches: What disagrees between ranks and was therefore not joined.
    """

    table: pl.DataFrame
    clock_offset_ns: Mapping[int, int]
    mismatches: tuple[Message, ...]


def join_ranks(kernels: pl.DataFrame, without: RuleNames = NO_RULES) -> Collectives:
    """Join the ranks at their collectives.

    Args:
        kernels: The kernel tables of all ranks with a column ``rank``.
        without: Inference rules that are off.
    """
    matched, doubts = match_collectives(kernels)
    roughly = _shift_to_one_clock(matched, align_clocks(matched, without)).with_columns(impossible=_flag_impossible())
    left_out = roughly.filter("impossible")["collective"].unique()
    if len(left_out):
        doubts = (*doubts, COLLECTIVES_APART(collectives=len(left_out)))
    possible = matched.filter(~pl.col("collective").is_in(left_out.implode()))
    ahead = align_clocks(possible, without)
    return Collectives(_add_waits(_shift_to_one_clock(possible, ahead)), ahead, doubts)


def _shift_to_one_clock(matched: pl.DataFrame, ahead_ns: Mapping[int, int]) -> pl.DataFrame:
    """Return collectives that several read ranks took part in, with times on the first rank's clock."""
    ahead = pl.col("rank").replace_strict(dict(ahead_ns), default=0, return_dtype=pl.Int64)
    return (
        matched.with_columns(pl.col("start_ns", "end_ns") - ahead, read=pl.len().over("collective"))
        .filter(pl.col("read") > 1)
        .rename({"start_ns": "arrival_ns"})
    )


def _flag_impossible() -> pl.Expr:
    first_end, last_end = pl.col("end_ns").min(), pl.col("end_ns").max()
    shortest = (pl.col("end_ns") - pl.col("arrival_ns")).min()
    apart = (last_end - first_end) > MAX_CLOCK_ERROR_NS + MAX_END_SPREAD_FRACTION * shortest
    disjoint = pl.col("arrival_ns").max() > first_end + MAX_CLOCK_ERROR_NS
    return pl.col("kind").is_in(SYNCHRONISING_KINDS) & (apart | disjoint).over("collective")


def _add_waits(table: pl.DataFrame) -> pl.DataFrame:
    """Add the columns ``awaits``, ``wait_us`` and ``transfer_us``.

    In a synchronising collective every rank awaits every arrival. In others a rank awaits the arrivals before its own
    end, and the root of a broadcast (the rank that ends first) awaits none::

        rank 0   |---- wait ----|== transfer ==|
        rank 1          |- wait |== transfer ==|
        rank 2                  |== transfer ==|     (last arrival)
    """
    ordered = table.sort("collective", "arrival_ns", "rank")
    is_root = (pl.col("kind") == ROOTED_KIND) & (pl.col("end_ns") == pl.col("end_ns").min().over("collective"))
    awaited = (
        ordered.join(_count_earlier_arrivals(ordered), on="row", how="left", maintain_order="left")
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


def _count_earlier_arrivals(ordered: pl.DataFrame) -> pl.DataFrame:
    """Count, for each rank of a non-synchronising collective, the arrivals before its end, its own included.

    Returns:
        ``row`` and ``before``.
    """
    one_sided = ordered.filter(~pl.col("kind").is_in(SYNCHRONISING_KINDS))
    arrivals = one_sided.select("collective", at_ns="arrival_ns", row=pl.lit(None, pl.Int64), arrived=1)
    ends = one_sided.select("collective", at_ns="end_ns", row="row", arrived=0)
    moments = pl.concat([arrivals, ends]).sort("collective", "at_ns", "arrived", descending=[False, False, True])
    counted = moments.with_columns(before=pl.col("arrived").cum_sum().over("collective"))
    return counted.drop_nulls("row").select("row", pl.col("before").cast(pl.Int64))
