"""Match the kernels of several ranks that are one collective, and find when each rank arrived there.

Recorded: newer traces have an id of the collective, or its number in its process group. Semantics: every rank has to
call the collectives of a group in the same order, so the order of a group's collectives of one kind and size within a
step identifies them elsewhere. Messages in groups of more than two ranks are numbered by each rank separately, but
messages from one rank to another keep their order. Matched kernels have to agree in kind and size; if matched by order,
their number has to agree too.

In synchronising collectives no rank ends before all have arrived. Heuristic: the limits of what can be one collective
in time, and which arrivals the ranks of other collectives needed. A rendezvous is a node without duration between the
arrivals and the ends::

    rank 0  start --0--> +------------+ --transfer--> end
    rank 1  start --0--> | rendezvous | --transfer--> end
    rank 2  start --0--> +------------+ --transfer--> end

There is one per collective or, where not every rank needs every other, one per number of arrivals that some rank needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.messages import Message
from tracekit.messages import requests as messages
from tracekit.messages.requests import COLLECTIVES_APART
from tracekit.rules import NO_RULES, Rule, RuleNames

RANK_CLOCKS_RULE = Rule(
    "rank-clocks",
    "Collectives that need every rank end on all ranks at once, which gives the ranks' clock offsets.",
    "Two jobs: mi300x_ddp_train of 4 ranks and v100_dlrm_train of 8; `tracekit explain replay` has more.",
)
"""Each host has its own clock, and each GPU's clock is translated to its host's with an error. A collective in which
every rank needs every other ends on all ranks at nearly the same time; the median difference of these ends is the clock
offset.
"""

SYNCHRONISING_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives in which every rank needs data of every other: none ends before all have arrived."""

UNEVEN_KIND = "all_to_all"
"""Collective whose ranks may send different amounts."""

MESSAGE_KIND = "send_recv"
"""Point-to-point operation: two ranks of a group take part."""

HAS_ID = ~pl.col("collective_id").is_in(["0", "-1"])
HAS_SEQUENCE_NUMBER = pl.col("collective_sequence") >= 0
GROUP_NAME = pl.coalesce("group_ranks", "process_group")

MAX_CLOCK_ERROR_NS = 200_000
MAX_END_SPREAD_FRACTION = 0.5

ROOTED_KIND = "broadcast"
"""Collective with one rank, the root, that waits for none."""


def match_collectives(kernels: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Message, ...]]:
    """Match the collectives of several ranks.

    The kernel tables of all ranks have a column ``rank``.

    Returns:
        A row per kernel that takes part in a collective: ``collective`` (its number), ``kind``, ``bytes`` (null where
            ranks may differ), ``group``, ``size`` (ranks of the group, null if not recorded), ``rank``, ``row`` (of the
            kernel table), ``start_ns``, ``end_ns`` (from the first start in the table); and what disagrees.
    """
    rows = add_match_keys(kernels)
    matched = rows.with_columns(_counts=pl.len().over("rank", "key")).with_columns(
        unlike=(pl.struct("kind", "bytes").n_unique() > 1).over("key", "occurrence"),
        crowded=(pl.len() > pl.col("size")).over("key", "occurrence"),
        uneven=pl.col("by_order") & (pl.col("_counts").n_unique() > 1).over("key"),
        unpaired=(pl.col("kind") == MESSAGE_KIND) & ~pl.col("paired") & (pl.col("size") > 2),
    )
    reasons = {
        "unlike": messages.COLLECTIVES_UNLIKE,
        "uneven": messages.COLLECTIVES_UNEVEN,
        "crowded": messages.COLLECTIVES_AMBIGUOUS,
        "unpaired": messages.MESSAGES_UNPAIRED,
    }
    wrong = pl.any_horizontal(pl.col(*reasons).fill_null(False))
    same = ("key", "occurrence")
    ordered = matched.filter(~wrong).sort(pl.col("start_ns").min().over(same), *same, "rank")
    good = ordered.with_columns(collective=pl.struct(same).rle_id().cast(pl.Int64))
    counts = {name: int(matched[name].fill_null(False).sum()) for name in reasons}
    doubts = [reasons[name](collectives=count) for name, count in counts.items() if count]
    columns = ("collective", "kind", "bytes", "group", "size", "rank", "row", "start_ns", "end_ns")
    return good.select(columns), tuple(doubts)


def add_match_keys(kernels: pl.DataFrame) -> pl.DataFrame:
    """List collectives with ``key``, which one shares with its matches on other ranks, and ``occurrence`` among equals.

    ``by_order`` is true where only their order within a step tells which belong together.
    """
    told = HAS_ID.fill_null(False)
    numbered = (HAS_SEQUENCE_NUMBER & pl.col("named")).fill_null(False)
    keyed = _describe_collectives(kernels).with_columns(
        by_order=pl.col("paired") | ~told & ~numbered,
        key=pl.when("paired")
        .then(pl.format("{} step {} from {} to {}", "group", "step", "sender", "receiver"))
        .when(told)
        .then(pl.format("id {}", "collective_id"))
        .when(numbered)
        .then(pl.format("{} number {} {}", "group", "collective_sequence", "kind"))
        .otherwise(pl.format("{} step {} {} {}", "group", "step", "kind", pl.col("bytes").fill_null(-1))),
    )
    return keyed.with_columns(occurrence=pl.int_range(pl.len()).over("rank", "key"))


def _describe_collectives(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives in order of start, with the columns of :func:`match_collectives` and those to match by."""
    kind = pl.coalesce("collective", "name")
    one_name = pl.col("process_group").n_unique().over("rank", "group_ranks") == 1
    name = pl.when(one_name).then(pl.lit("")).otherwise(pl.col("process_group").fill_null(""))
    paired = (kind == MESSAGE_KIND) & pl.any_horizontal(pl.col("sender", "receiver").is_not_null())
    first = kernels["ts_ns"].min()
    rows = kernels.with_row_index("row").filter(pl.col("family") == "collective").sort("ts_ns")
    return rows.select(
        "rank",
        "collective_id",
        "collective_sequence",
        pl.col("row").cast(pl.Int64),
        pl.col("step").fill_null(-1),
        pl.coalesce("sender", "rank").alias("sender"),
        pl.coalesce("receiver", "rank").alias("receiver"),
        paired=paired,
        kind=kind,
        bytes=pl.when(kind != UNEVEN_KIND).then("bytes"),
        size=pl.when(paired).then(2).otherwise("ranks"),
        named=GROUP_NAME.is_not_null(),
        group=pl.format("{} {} of {}", GROUP_NAME.fill_null("?"), name, pl.col("ranks").fill_null(0)),
        start_ns=pl.col("ts_ns") - first,
        end_ns=pl.col("ts_ns") + pl.col("dur_ns") - first,
    )


# Limits of what can be one collective: no rank ends before another arrives, and ends do not lie far apart.
def align_clocks(matched: pl.DataFrame, without: RuleNames) -> dict[int, int]:
    """Return how far each rank's clock is ahead of the first rank's, from the lowest rank over shared collectives.

    ``matched`` is from :func:`match_collectives`.

    Returns:
        Offset in ns by rank. Ranks that share no such collective with the others are missing: their clock is taken as
            recorded.
    """
    if not RANK_CLOCKS_RULE.is_on(without):
        return {}
    ends = matched.filter(pl.col("kind").is_in(SYNCHRONISING_KINDS)).select("collective", "rank", "end_ns")
    ranks = matched["rank"].unique().sort().to_list()
    ahead = {ranks[0]: 0} if ranks else {}
    while found := _estimate_offsets(ends, ahead):
        ahead |= found
    return ahead


def _estimate_offsets(ends: pl.DataFrame, ahead: Mapping[int, int]) -> dict[int, int]:
    """Estimate the offsets of the ranks that share collectives with ranks of known offset."""
    offsets = pl.DataFrame(
        {"rank": list(ahead), "ahead": list(ahead.values())}, schema={"rank": pl.Int64, "ahead": pl.Int64}
    )
    corrected = ends.join(offsets, on="rank").with_columns(pl.col("end_ns") - pl.col("ahead"))
    known = corrected.group_by("collective").agg(at=pl.col("end_ns").median())
    others = ends.filter(~pl.col("rank").is_in(list(ahead))).join(known, on="collective")
    found = others.group_by("rank").agg(ahead=(pl.col("end_ns") - pl.col("at")).median().round())
    return {rank: int(offset) for rank, offset in found.iter_rows()}


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

    The kernel tables of all ranks have a column ``rank``.
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


@dataclass(frozen=True, slots=True)
class RendezvousPoints:
    """Rendezvous of the ranks.

    Attributes:
        names: Kind of each collective.
        arrival_row: For every arrival, the row of the kernel table.
        arrival_point: The rendezvous of each arrival.
        end_row: For every rank's end, the row of the kernel table.
        end_point: The rendezvous that precedes each end.
    """

    names: pl.Series
    arrival_row: Ints
    arrival_point: Ints
    end_row: Ints
    end_point: Ints


def build_rendezvous_points(collectives: Collectives) -> RendezvousPoints:
    """Build the rendezvous of joined collectives."""
    table = collectives.table.with_columns(
        place=pl.int_range(1, pl.len() + 1).over("collective", order_by=["arrival_ns", "rank"])
    )
    needed = table.filter(pl.col("awaits") > 0)
    found = (
        needed.select("collective", "awaits", "kind").unique().sort("collective", "awaits").with_row_index("meeting")
    )
    arrivals = found.join(table, on="collective").filter(pl.col("place") <= pl.col("awaits"))
    after = needed.join(found, on=["collective", "awaits"], maintain_order="left")
    return RendezvousPoints(
        names=found["kind"],
        arrival_row=arrivals["row"].to_numpy(),
        arrival_point=arrivals["meeting"].cast(pl.Int64).to_numpy(),
        end_row=after["row"].to_numpy(),
        end_point=after["meeting"].cast(pl.Int64).to_numpy(),
    )


def build_rendezvous_edges(found: RendezvousPoints, meeting_node: int, activity_node: int, run_ns: Ints) -> Edges:
    """Build edges from arrivals to rendezvous, and from rendezvous to the ends of the collectives.

    ``meeting_node`` and ``activity_node`` are the numbers of the first rendezvous and the first activity; ``run_ns`` is
    the duration of each activity without its waits.
    """
    arrive = to_start_vertices(activity_node + found.arrival_row), to_start_vertices(meeting_node + found.arrival_point)
    finish = to_end_vertices(meeting_node + found.end_point), to_end_vertices(activity_node + found.end_row)
    return Edges(
        EdgeKind.RENDEZVOUS,
        np.concatenate([arrive[0], finish[0]]),
        np.concatenate([arrive[1], finish[1]]),
        np.concatenate([np.zeros(found.arrival_row.size, dtype=np.int64), run_ns[found.end_row]]),
    )
