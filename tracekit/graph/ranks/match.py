"""Match the kernels of several ranks that are one collective.

Recorded: newer traces have an id of the collective, or its number in its process group. Semantics: every rank has to
call the collectives of a group in the same order, so the order of a group's collectives of one kind and size within a
step identifies them elsewhere. Messages in groups of more than two ranks are numbered by each rank separately, but
messages from one rank to another keep their order.
Matched kernels have to agree in kind and size; if matched by order, their number has to agree too.
"""

import polars as pl

from tracekit.messages import Message
from tracekit.messages import requests as messages

SYNCHRONISING_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives in which every rank needs data of every other: none ends before all have arrived."""

UNEVEN_KIND = "all_to_all"
"""Collective whose ranks may send different amounts."""

MESSAGE_KIND = "send_recv"
"""Point-to-point operation: two ranks of a group take part."""

HAS_ID = ~pl.col("collective_id").is_in(["0", "-1"])
HAS_SEQUENCE_NUMBER = pl.col("collective_sequence") >= 0
GROUP_NAME = pl.coalesce("group_ranks", "process_group")


def match_collectives(kernels: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Message, ...]]:
    """Match the collectives of several ranks.

    Args:
        kernels: The kernel tables of all ranks with a column ``rank``.

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
