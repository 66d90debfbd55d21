"""Which kernels of several ranks are one collective.

Newer traces say so: by an id of the collective, or its number in its process group. Else the order in which a group's
collectives of one kind and size follow each other in a step tells, as every rank has to call them in the same order.
Messages between two ranks of more are numbered by each rank for itself; those from one rank to another keep their
order.
What is matched has to agree in kind and size, and in order matching in number.
"""

import polars as pl

SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Kinds in which every rank needs something of every other, so that none ends before all have arrived."""

UNEVEN = "all_to_all"
"""The kind whose ranks may send different amounts."""

MESSAGE = "send_recv"
"""The kind in which two ranks of a group take part."""

SOME_ID = ~pl.col("collective_id").is_in(["0", "-1"])
NUMBERED = pl.col("collective_sequence") >= 0
GROUP = pl.coalesce("group_ranks", "process_group")


def match(kernels: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The collectives of several ranks, matched.

    Args:
        kernels: The kernel tables of all ranks with a column ``rank``.

    Returns:
        A row per kernel that takes part in a collective: ``collective`` (its number), ``kind``, ``bytes`` (null where
        the ranks' may differ), ``group``, ``size`` (ranks of the group, null if not recorded), ``rank``, ``row`` (of
        the kernel table), ``start_ns``, ``end_ns`` (from the first start in the table); and what disagrees, a sentence
        each.
    """
    rows = _keyed(kernels)
    matched = rows.with_columns(_counts=pl.len().over("rank", "key")).with_columns(
        unlike=(pl.struct("kind", "bytes").n_unique() > 1).over("key", "occurrence"),
        crowded=(pl.len() > pl.col("size")).over("key", "occurrence"),
        uneven=pl.col("by_order") & (pl.col("_counts").n_unique() > 1).over("key"),
        unpaired=(pl.col("kind") == MESSAGE) & ~pl.col("paired") & (pl.col("size") > 2),
    )
    reasons = {
        "unlike": "differ in kind or size between ranks",
        "uneven": "are not as many on every rank",
        "crowded": "can't be told apart, as their process groups aren't recorded",
        "unpaired": "are messages of which the other rank isn't recorded",
    }
    wrong = pl.any_horizontal(pl.col(*reasons).fill_null(False))
    same = ("key", "occurrence")
    ordered = matched.filter(~wrong).sort(pl.col("start_ns").min().over(same), *same, "rank")
    good = ordered.with_columns(collective=pl.struct(same).rle_id().cast(pl.Int64))
    doubts = [
        f"{n} collectives {text}" for name, text in reasons.items() if (n := matched[name].fill_null(False).sum())
    ]
    columns = ("collective", "kind", "bytes", "group", "size", "rank", "row", "start_ns", "end_ns")
    return good.select(columns), tuple(doubts)


def _keyed(kernels: pl.DataFrame) -> pl.DataFrame:
    """The collectives with what their matches on other ranks share: ``key``, and ``occurrence`` among equals."""
    told = SOME_ID.fill_null(False)
    numbered = (NUMBERED & pl.col("named")).fill_null(False)
    keyed = _described(kernels).with_columns(
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


def _described(kernels: pl.DataFrame) -> pl.DataFrame:
    """The collectives in order of start, as :func:`match` gives them and with what tells which belong together."""
    kind = pl.coalesce("collective", "name")
    one_name = pl.col("process_group").n_unique().over("rank", "group_ranks") == 1
    name = pl.when(one_name).then(pl.lit("")).otherwise(pl.col("process_group").fill_null(""))
    paired = (kind == MESSAGE) & pl.any_horizontal(pl.col("sender", "receiver").is_not_null())
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
        bytes=pl.when(kind != UNEVEN).then("bytes"),
        size=pl.when(paired).then(2).otherwise("ranks"),
        named=GROUP.is_not_null(),
        group=pl.format("{} {} of {}", GROUP.fill_null("?"), name, pl.col("ranks").fill_null(0)),
        start_ns=pl.col("ts_ns") - first,
        end_ns=pl.col("ts_ns") + pl.col("dur_ns") - first,
    )
