"""Collectives on another cluster: the measured transfer times what the model says of both clusters, waiting apart."""

import polars as pl

from tracekit.comm import Cluster
from tracekit.prediction.layout import Layout, groups
from tracekit.prediction.messages import CALL, SIZES, messages, on_cluster, sized_by_time
from tracekit.prediction.scaling import messages_as
from tracekit.replay.run import Run

SIDES = {"ratio_least": "least_bytes", "ratio": "bytes", "ratio_most": "most_bytes"}
"""What is computed for the least, the likely and the largest size of a message."""


def retarget(
    run: Run, source: Cluster | None, target: Cluster, layouts: tuple[Layout, Layout] | None = None
) -> pl.DataFrame:
    """How long a run's collectives take on a cluster.

    The transfer is multiplied by model(target) / model(source), the waiting for other ranks kept; a group of one rank
    neither waits nor transfers. Where the source isn't known, or the group had one rank there, the target's model
    replaces the transfer.

    Args:
        run: The measured run.
        source: Cluster that it was measured on; None if it isn't known.
        target: Cluster to predict.
        layouts: Of the trace, and on the target; None where it stays.

    Returns:
        ``row`` in the kernel table; ``transfer_us`` as measured; ``time_us``, ``low_us``, ``high_us`` and ``method`` on
        the target, null where that can't be told; ``alone``, whether the group has only one rank left.

    Raises:
        ClusterError: The job doesn't fit on the cluster.
    """
    old = messages(run.kernels, run.trace.world_size)
    dur_us = run.kernels["dur_ns"].gather(old["row"]) / 1e3
    if source is not None:
        old = sized_by_time(old, dur_us, source)
    new = messages_as(old, groups(run), *layouts) if layouts else old
    everyone = run.collectives is not None and len(run.ranks) == run.trace.world_size
    return _retargeted(old, new, source, target, dur_us, everyone)


def _retargeted(
    old: pl.DataFrame, new: pl.DataFrame, source: Cluster | None, target: Cluster, dur_us: pl.Series, everyone: bool
) -> pl.DataFrame:
    """``retarget`` of collectives ``old`` that are ``new`` on the target.

    Unless everyone was read, the shortest of like collectives may still hold waiting, as one rank may never come
    last; so what exceeds the model's interval is taken for waiting too. The prediction's interval holds both views.
    """
    sides = {name: _factors(old, new, source, target, size) for name, size in SIDES.items()}
    table = sides["ratio"].with_columns(*(side["ratio"].alias(name) for name, side in sides.items()), dur_us=dur_us)
    limited = pl.col("dur_us") if everyone else pl.min_horizontal("dur_us", "limit_us")
    table = table.with_columns(transfer_us=limited)
    ends = [
        _lasting(transfer, pl.col(ratio) * width)
        for transfer in ("transfer_us", "dur_us")
        for ratio in SIDES
        for width in (1 / pl.col("width"), pl.col("width"))
    ]
    timed = {
        "time_us": _lasting("transfer_us", pl.col("ratio")),
        "low_us": pl.min_horizontal(*ends),
        "high_us": pl.max_horizontal(*ends),
    }
    known, same = pl.col("ratio").is_not_null(), pl.when(pl.col("same"))
    carried = known & ~pl.col("absolute")
    method = same.then(pl.lit("measured")).when(carried).then(pl.lit("transfer")).when(known).then(pl.lit("law"))
    return table.select(
        "row",
        "transfer_us",
        **{name: same.then("dur_us").when(known).then(time) for name, time in timed.items()},
        method=method,
        alone=pl.col("alone"),
    )


def _lasting(transfer: str, factor: pl.Expr) -> pl.Expr:
    """Waiting and transfer together, the transfer times a factor, or replaced where the source's model isn't known."""
    waiting = pl.when(pl.col("alone")).then(0.0).otherwise(pl.col("dur_us") - pl.col(transfer))
    return waiting + pl.when(pl.col("absolute")).then(1.0).otherwise(pl.col(transfer)) * factor


def _factors(old: pl.DataFrame, new: pl.DataFrame, source: Cluster | None, target: Cluster, size: str) -> pl.DataFrame:
    """What the models say of each ``row``: ``ratio`` of times and the ``width`` of its interval.

    And ``limit_us``, the longest transfer that the source's model allows; whether the ``ratio`` is ``absolute``, the
    target's time; whether the call is the ``same`` on both, and ``alone``, without other ranks, on the target.
    """
    there = _times(new, target, size)
    alone = pl.col("ranks") <= 1
    if source is None:
        nothing = {"limit_us": pl.lit(None, pl.Float64), "same": pl.lit(False), "absolute": pl.lit(True)}
        return there.select("row", "width", ratio="time_us", alone=alone, **nothing)
    here = _times(old, source, size)
    table = there.with_columns(
        before_us=here["time_us"],
        width_before=here["width"],
        nodes_before=here["nodes"],
        ranks_before=old["ranks"],
        alike=pl.all_horizontal(*(old[name].eq_missing(new[name]) for name in (*CALL, *SIZES))),
    )
    in_node = (pl.col("nodes") == 1) & (pl.col("nodes_before") == 1)
    joined = in_node | pl.lit((source.network, source.network_gbps) == (target.network, target.network_gbps))
    carried = pl.when(pl.col("before_us") > 0).then(pl.col("time_us") / pl.col("before_us"))
    absolute = (pl.col("before_us") == 0) & ~alone
    return table.select(
        "row",
        ratio=pl.when(alone & (pl.col("ranks_before") > 1)).then(0.0).when(absolute).then("time_us").otherwise(carried),
        width=(pl.col("width").log().pow(2) + pl.col("width_before").log().pow(2)).sqrt().exp(),
        limit_us=pl.col("before_us") * pl.col("width_before"),
        same=pl.col("alike") & joined & pl.lit(_node(source) == _node(target)),
        alone=alone,
        absolute=absolute,
    )


def _node(cluster: Cluster) -> tuple[object, ...]:
    """What of a node its collectives' times depend on."""
    links = cluster.fabric, cluster.pcie_gen, cluster.pair_gbps, cluster.peer_access, cluster.measured
    return cluster.gpu, cluster.gpus_per_node, *links


def _times(calls: pl.DataFrame, cluster: Cluster, size: str) -> pl.DataFrame:
    """``calls`` with ``time_us``, ``width`` and ``nodes`` of one size."""
    key = [*CALL, "bytes"]
    wanted = calls.select("row", *CALL, bytes=pl.col(size))
    timed = on_cluster(wanted.select(key).unique(), cluster).with_columns(
        width=pl.when(pl.col("time_us") > 0).then(pl.col("high_us") / pl.col("time_us")).otherwise(1.0)
    )
    columns = timed.select(*key, "time_us", "width", "nodes")
    return wanted.join(columns, on=key, how="left", nulls_equal=True, maintain_order="left")


def put_in(times: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Predicted kernels with the times of collectives put in, and their transfer; what can't be told is null.

    Args:
        times: Of all kernels.
        collectives: As :func:`retarget` gives them.
    """
    changed = ("time_us", "low_us", "high_us", "method")
    joined = collectives.drop("alone")
    rows = times.with_row_index("row").join(joined, on="row", how="left", suffix="_new", maintain_order="left")
    mine = pl.col("family") == "collective"
    return rows.with_columns(pl.when(mine).then(f"{name}_new").otherwise(name).alias(name) for name in changed).select(
        *times.columns, "transfer_us"
    )
