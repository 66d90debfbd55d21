"""The time that collectives need by themselves, without waiting for other ranks.

A collective's kernel runs from its own rank's arrival to the end, so its duration is waiting plus transfer. Where
several ranks were read the last arrival is known, and what follows it is transfer. One rank alone shows only the sum;
the least that it ever saw of a like collective is then the best guess.
"""

import polars as pl

LIKE = ("kind", "ranks", "process_group", "device", "stream")
"""Collectives that are alike but for their size: one kind in one group, which NCCL gives a stream of its own."""


def transfer_us(kernels: pl.DataFrame, joined: pl.DataFrame | None = None) -> pl.Series:
    """Pure transfer time of each collective, in microseconds; null for other kernels.

    Of a measured run (``tracekit.replay.run.Run.kernels``), whose ``dur_ns`` has no waiting in it, it is that. Else,
    with several ranks joined, it is the time from the last rank's arrival to the end. Else it is the lower envelope
    over repeats: the shortest collective of its kind, group and at least its size, as more bytes never take less. That
    is too long where this rank never came last, by what it waited at least; and a collective without repeats counts as
    transfer altogether. A group of one rank waits for none.

    Args:
        kernels: The kernel table (``schema.KERNELS``).
        joined: Collectives of several ranks: ``row`` of the kernel table, ``transfer_us``. Those missing there take the
            envelope.
    """
    if "wait_ns" in kernels.columns:
        return kernels.select(pl.when(pl.col("family") == "collective").then(pl.col("dur_ns") / 1e3)).to_series()
    envelope = _envelope(kernels)
    if joined is None:
        return envelope
    known = kernels.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("row")).join(
        joined.select(pl.col("row").cast(pl.Int64), transfer_us="transfer_us"),
        on="row",
        how="left",
        maintain_order="left",
    )
    return known.select(pl.coalesce("transfer_us", envelope)).to_series().rename("transfer_us")


def _envelope(kernels: pl.DataFrame) -> pl.Series:
    """The shortest of like collectives that are no smaller; of unknown size, of that kernel with as many blocks."""
    rows = kernels.with_row_index("row").filter(pl.col("family") == "collective")
    described = rows.select(
        "row",
        "bytes",
        "dur_ns",
        *LIKE[1:],
        kind=pl.coalesce("collective", "name"),
        **{name: pl.when(pl.col("bytes").is_null()).then(name) for name in ("name", "blocks")},
    )
    like = (*LIKE, "name", "blocks", pl.col("bytes").is_null())
    least = (
        described.sort("bytes", descending=True, nulls_last=True)
        .with_columns(least=pl.col("dur_ns").min().over(*like, "bytes"))
        .with_columns(least=pl.col("least").cum_min().over(*like))
        .with_columns(transfer_us=pl.when(pl.col("ranks") == 1).then("dur_ns").otherwise("least") / 1e3)
    )
    everything = kernels.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"))
    return everything.join(least.select("row", "transfer_us"), on="row", how="left", maintain_order="left")[
        "transfer_us"
    ]
