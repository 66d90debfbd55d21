"""The collectives of a run as a cluster sees them: how many bytes over how many ranks, and where these sit."""

import numpy as np
import polars as pl

from tracekit.comm import Cluster, sizes
from tracekit.comm import predict as predict_collectives
from tracekit.comm.calls import BUS_FACTOR
from tracekit.comm.predict import fewest_nodes

CALL = ("collective", "dtype", "ranks", "stride", "custom")
SIZES = ("bytes", "least_bytes", "most_bytes")

LIBRARY = r"(?i)nccl|msccl|^c10d::"
"""Kernels of NCCL, RCCL and what runs in their place, and the ops that ask for them. All other all-reduces are a job's
own: of vLLM, SGLang, TensorRT-LLM, FlashInfer, aiter, symmetric memory."""

DOUBT = 2.0
"""Factor by which a size that only its duration tells may be off."""

FIRST_TWO = r"^\[(\d{1,9}),(\d{1,9})[,\]]"

_POWERS = np.arange(4, 40, 0.5)


def messages(kernels: pl.DataFrame, world_size: int) -> pl.DataFrame:
    """The collectives of a kernel table: ``row`` in it, ``CALL`` and ``SIZES``.

    A size that wasn't recorded is the middle of what the launch allows; ``least_bytes`` and ``most_bytes`` say how far
    it can be off. Ranks that weren't recorded are all of the job's.

    Args:
        kernels: The kernel table.
        world_size: Ranks of the job.
    """
    rows = kernels.with_row_index("row").filter(pl.col("family") == "collective")
    rows = rows.with_columns(
        ranks=pl.when(pl.col("ranks") > 0).then("ranks").otherwise(world_size),
        stride=_stride(),
        collective=pl.when(pl.col("collective").is_in(list(BUS_FACTOR))).then("collective"),
    )
    of_library = pl.any_horizontal(pl.col("name", "op").str.contains(LIBRARY).fill_null(False))
    custom = (pl.col("collective") == "all_reduce").fill_null(False) & ~of_library
    bounds = rows.hstack(sizes.bracket(rows)).with_columns(custom=custom)
    middle = (pl.max_horizontal("least_bytes", 1.0) * pl.col("most_bytes")).sqrt()
    return bounds.select(
        "row",
        *CALL,
        bytes=pl.coalesce(pl.col("bytes").cast(pl.Float64), middle),
        least_bytes=pl.coalesce(pl.col("bytes").cast(pl.Float64), "least_bytes"),
        most_bytes=pl.coalesce(pl.col("bytes").cast(pl.Float64), "most_bytes"),
    )


def _stride() -> pl.Expr:
    """Distance of a group's first two ranks; of more than 30 PyTorch writes the first ones, which is no JSON."""
    first, second = (
        pl.col("group_ranks").str.extract(FIRST_TWO, place).cast(pl.Int64, strict=False) for place in (1, 2)
    )
    return (second - first).fill_null(1)


def sized_by_time(calls: pl.DataFrame, pure_us: pl.Series, cluster: Cluster) -> pl.DataFrame:
    """``calls`` with the size of those that have none, from how long they took on the cluster of the trace.

    Args:
        calls: As :func:`messages` gives them.
        pure_us: Their transfer times.
        cluster: Of the trace.
    """
    table = calls.with_columns(pure_us=pure_us)
    unsized = table.filter(pl.col("bytes").is_null() & pl.col("collective").is_not_null())
    if unsized.is_empty():
        return calls
    parts = []
    for key, part in unsized.group_by(*CALL):
        grid = pl.DataFrame({"bytes": 2.0**_POWERS}).with_columns(
            **{name: pl.lit(value) for name, value in zip(CALL, key, strict=True)}
        )
        time_us = np.maximum.accumulate(on_cluster(grid, cluster)["time_us"].to_numpy())
        told = 2.0 ** np.interp(part["pure_us"].to_numpy(), time_us, _POWERS)
        parts.append(part.select("row", told=pl.Series(told)))
    told = pl.max_horizontal("told", "least_bytes")
    return calls.join(pl.concat(parts), on="row", how="left", maintain_order="left").select(
        "row",
        *CALL,
        bytes=pl.when(pl.col("told").is_null()).then("bytes").otherwise(told),
        least_bytes=pl.when(pl.col("told").is_null())
        .then("least_bytes")
        .otherwise(pl.max_horizontal(told / DOUBT, "least_bytes")),
        most_bytes=pl.when(pl.col("told").is_null()).then("most_bytes").otherwise(told * DOUBT),
    )


def on_cluster(calls: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """What ``tracekit.comm.predict`` says of calls whose groups take every ``stride``-th GPU, and their ``nodes``.

    Args:
        calls: With ``CALL`` and ``bytes``.
        cluster: Where they run.
    """
    per_node = (pl.lit(cluster.gpus_per_node) // pl.col("stride")).clip(1)
    nodes = (pl.col("ranks") / per_node).ceil().clip(1, cluster.nodes)
    fits = pl.col("ranks") * pl.col("stride") <= cluster.gpus_per_node
    apart = pl.when(pl.col("stride") > 1).then(pl.when(fits).then(1.0).otherwise(nodes))
    found = predict_collectives(calls.with_columns(nodes=apart), cluster)
    return found.with_columns(pl.col("nodes").fill_null(fewest_nodes(cluster)))
