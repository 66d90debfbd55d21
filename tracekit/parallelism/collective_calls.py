"""List a program's collectives as messages on a cluster: bytes, ranks, and where the ranks are."""

import numpy as np
import polars as pl

from tracekit.comm import Cluster, message_sizes
from tracekit.comm import predict as predict_collectives
from tracekit.comm.collective_calls import BUS_FACTOR
from tracekit.comm.predict import compute_min_nodes
from tracekit.workload.names.collective import DEEP_EP, EXPERT_EXCHANGE

CALL_COLUMNS = ("collective", "dtype", "ranks", "stride", "custom", "exchange")
"""Columns that describe a collective's call."""
SIZE_COLUMNS = ("bytes", "least_bytes", "most_bytes")
"""Columns of a message's likely, least and largest size."""

LIBRARY_COLLECTIVES = r"(?i)nccl|msccl|^c10d::"
"""Kernels of NCCL, RCCL and their replacements, and ops that call them.

All other all-reduces are a framework's own: vLLM, SGLang, TensorRT-LLM, FlashInfer, aiter, symmetric memory.
"""

LOW_LATENCY_EXCHANGE = r"(?i)int(?:ra|er)node_ll|low_?latency|\ba2a_(?:dispatch|combine)_"
"""Kernels of exchanges that send a token to each of its experts, without counts first."""

INFERRED_SIZE_FACTOR = 2.0
"""Error factor of a size that was inferred from the duration alone."""

FIRST_TWO_RANKS = r"^\[(\d{1,9}),(\d{1,9})[,\]]"

_SIZE_EXPONENTS = np.arange(4, 40, 0.5)


def list_collectives(kernels: pl.DataFrame, world_size: int) -> pl.DataFrame:
    """List the collectives of a kernel table: ``row`` in it, ``CALL_COLUMNS`` and ``SIZE_COLUMNS``.

    A size that wasn't recorded is the geometric mean of the bounds that the launch sets, ``least_bytes`` and
    ``most_bytes``. Where the ranks weren't recorded, all of the job's are assumed.

    Args:
        kernels: The kernel table.
        world_size: Number of the job's ranks.
    """
    rows = kernels.with_row_index("row").filter(pl.col("family") == "collective")
    rows = rows.with_columns(
        ranks=pl.when(pl.col("ranks") > 0).then("ranks").otherwise(world_size),
        stride=_compute_stride(),
        collective=pl.when(pl.col("collective").is_in(list(BUS_FACTOR))).then("collective"),
    )
    of_library = pl.any_horizontal(pl.col("name", "op").str.contains(LIBRARY_COLLECTIVES).fill_null(False))
    custom = (pl.col("collective") == "all_reduce").fill_null(False) & ~of_library
    bounds = rows.hstack(message_sizes.bound_message_bytes(rows)).with_columns(custom=custom, exchange=_find_exchange())
    middle = (pl.max_horizontal("least_bytes", 1.0) * pl.col("most_bytes")).sqrt()
    return bounds.select(
        "row",
        *CALL_COLUMNS,
        bytes=pl.coalesce(pl.col("bytes").cast(pl.Float64), middle),
        least_bytes=pl.coalesce(pl.col("bytes").cast(pl.Float64), "least_bytes"),
        most_bytes=pl.coalesce(pl.col("bytes").cast(pl.Float64), "most_bytes"),
    )


def _find_exchange() -> pl.Expr:
    """Name the exchange that a kernel between experts is one of, as ``tracekit.comm.predict`` knows it.

    Those of traces are DeepEP's kernels; those of a captured engine are what its op is called after.
    """
    named = pl.col("name").str.contains(f"{DEEP_EP}|{EXPERT_EXCHANGE}").fill_null(False)
    mode = pl.when(pl.col("name").str.contains(LOW_LATENCY_EXCHANGE)).then(pl.lit("low_latency"))
    phase = pl.when(pl.col("name").str.contains("(?i)combine")).then(pl.lit("combine")).otherwise(pl.lit("dispatch"))
    library = pl.col("op").str.extract(r"^tracekit::all_to_all_of_(\w+)$").fill_null("deepep")
    name = pl.concat_str(library, mode.otherwise(pl.lit("normal")), phase, separator="_")
    return pl.when(named, pl.col("collective") == "all_to_all").then(name)


def _compute_stride() -> pl.Expr:
    """Distance of a group's first two ranks; of more than 30 PyTorch writes the first ones, which is no JSON."""
    first, second = (
        pl.col("group_ranks").str.extract(FIRST_TWO_RANKS, place).cast(pl.Int64, strict=False) for place in (1, 2)
    )
    return (second - first).fill_null(1)


def infer_sizes_from_times(calls: pl.DataFrame, transfer_us: pl.Series, cluster: Cluster) -> pl.DataFrame:
    """Infer unknown message sizes from their durations on the trace's cluster.

    Args:
        calls: As :func:`list_collectives` returns them.
        transfer_us: Their transfer times.
        cluster: Cluster of the trace.
    """
    table = calls.with_columns(pure_us=transfer_us)
    unsized = table.filter(pl.col("bytes").is_null() & pl.col("collective").is_not_null())
    if unsized.is_empty():
        return calls
    parts = []
    for key, part in unsized.group_by(*CALL_COLUMNS):
        grid = pl.DataFrame({"bytes": 2.0**_SIZE_EXPONENTS}).with_columns(
            **{name: pl.lit(value) for name, value in zip(CALL_COLUMNS, key, strict=True)}
        )
        time_us = np.maximum.accumulate(predict_on_cluster(grid, cluster)["time_us"].to_numpy())
        told = 2.0 ** np.interp(part["pure_us"].to_numpy(), time_us, _SIZE_EXPONENTS)
        parts.append(part.select("row", told=pl.Series(told)))
    told = pl.max_horizontal("told", "least_bytes")
    return calls.join(pl.concat(parts), on="row", how="left", maintain_order="left").select(
        "row",
        *CALL_COLUMNS,
        bytes=pl.when(pl.col("told").is_null()).then("bytes").otherwise(told),
        least_bytes=pl.when(pl.col("told").is_null())
        .then("least_bytes")
        .otherwise(pl.max_horizontal(told / INFERRED_SIZE_FACTOR, "least_bytes")),
        most_bytes=pl.when(pl.col("told").is_null()).then("most_bytes").otherwise(told * INFERRED_SIZE_FACTOR),
    )


def predict_on_cluster(calls: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """Predict calls whose groups take every ``stride``-th GPU, as ``tracekit.comm.predict`` does, and their ``nodes``.

    Args:
        calls: Rows with ``CALL_COLUMNS`` and ``bytes``.
        cluster: The cluster.
    """
    per_node = (pl.lit(cluster.gpus_per_node) // pl.col("stride")).clip(1)
    nodes = (pl.col("ranks") / per_node).ceil().clip(1, cluster.nodes)
    fits = pl.col("ranks") * pl.col("stride") <= cluster.gpus_per_node
    apart = pl.when(pl.col("stride") > 1).then(pl.when(fits).then(1.0).otherwise(nodes))
    found = predict_collectives(calls.with_columns(nodes=apart), cluster)
    return found.with_columns(pl.col("nodes").fill_null(compute_min_nodes(cluster)))
