"""Estimate the time that collectives need by themselves, without waiting for other ranks.

A collective's kernel runs from its own rank's arrival to the end, so its duration is waiting plus transfer::

    rank 0  |----- waits -----|== transfer ==|
    rank 1                    |== transfer ==|   the last rank to arrive

If several ranks were read, the last arrival is known, and the time after it is transfer. One rank alone shows only the
sum. The shortest similar collective of that rank is then the best estimate.
"""

import polars as pl

from tracekit.arrays import make_nulls
from tracekit.rules import NO_RULES, Rule, RuleNames
from tracekit.workload.names.collective import DEEP_EP, EXPERT_EXCHANGE

RULE = Rule(
    "collective-waits",
    "A collective's time beyond the shortest similar one was waiting for ranks that were not read.",
    "Jobs of which all ranks were read, such as v100_dlrm_train: the rank that arrives last shows the transfer alone.",
)
MATCH_COLUMNS = ("kind", "ranks", "process_group", "device", "stream")
"""Columns by which collectives are similar except for their size: one kind in one group, on the group's NCCL stream."""


def estimate_transfer_us(
    kernels: pl.DataFrame, joined: pl.DataFrame | None = None, without: RuleNames = NO_RULES
) -> pl.Series:
    """Estimate the pure transfer time of each collective in microseconds; null for other kernels.

    The source of the estimate, in this order:

    * The kernel table of a measured run (``MeasuredRun.kernels``): its ``dur_ns`` has no waiting in it.
    * Collectives of several joined ranks: the time from the last rank's arrival to the end.
    * The lower envelope over repeats: the shortest collective of the same kind and group with at least the same size,
      as more bytes never take less time. It is too long by the least waiting if this rank never arrived last. A
      collective without repeats counts as transfer as a whole. A group of one rank never waits.

    Args:
        kernels: The kernel table (``schema.KERNELS``).
        joined: Collectives of several ranks: ``row`` of the kernel table, ``transfer_us``. Collectives that are
            missing there use the envelope.
        without: Inference rules that are off; without this one, an unread rank's waiting counts as transfer.
    """
    if not (kernels["family"] == "collective").any():
        return make_nulls("transfer_us", kernels.height, pl.Float64)
    if "wait_ns" in kernels.columns:
        return kernels.select(pl.when(pl.col("family") == "collective").then(pl.col("dur_ns") / 1e3)).to_series()
    if RULE.is_on(without):
        envelope = _compute_lower_envelope(kernels)
    else:
        envelope = kernels.select(pl.when(pl.col("family") == "collective").then(pl.col("dur_ns") / 1e3)).to_series()
    if joined is None:
        return envelope
    known = kernels.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("row")).join(
        joined.select(pl.col("row").cast(pl.Int64), transfer_us="transfer_us"),
        on="row",
        how="left",
        maintain_order="left",
    )
    return known.select(pl.coalesce("transfer_us", envelope)).to_series().rename("transfer_us")


def _compute_lower_envelope(kernels: pl.DataFrame) -> pl.Series:
    """Compute the shortest duration of similar collectives that are no smaller.

    An exchange between experts is compared with the same kernel: ways there and back differ, and so do modes.
    Collectives of unknown size are compared with the same kernel launched with as many blocks.
    """
    rows = kernels.with_row_index("row").filter(pl.col("family") == "collective")
    described = rows.select(
        "row",
        "bytes",
        "dur_ns",
        *MATCH_COLUMNS[1:],
        kind=pl.when(pl.col("name").str.contains(f"{DEEP_EP}|{EXPERT_EXCHANGE}"))
        .then("name")
        .otherwise(pl.coalesce("collective", "name")),
        **{name: pl.when(pl.col("bytes").is_null()).then(name) for name in ("name", "blocks")},
    )
    like = (*MATCH_COLUMNS, "name", "blocks", pl.col("bytes").is_null())
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
