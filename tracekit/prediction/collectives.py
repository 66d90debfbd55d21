"""Predict collectives on another cluster: scale the measured transfer by the model's ratio, keep the waiting time."""

import polars as pl

from tracekit.comm import Cluster
from tracekit.comm.cluster import compute_rate_spread
from tracekit.kept import keep_on_first
from tracekit.models.stacks import find_stack
from tracekit.parallelism.collective_calls import (
    CALL_COLUMNS,
    SIZE_COLUMNS,
    infer_sizes_from_times,
    list_collectives,
    predict_on_cluster,
)
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.process_groups import TP_GROUP, infer_group_roles
from tracekit.parallelism.relayout import relayout_collectives
from tracekit.prediction.model import Target
from tracekit.program import Program

RATIO_SIZES = {"ratio_least": "least_bytes", "ratio": "bytes", "ratio_most": "most_bytes"}
"""Size column for the ratio with the least, the likely and the largest message."""
MIN_ASSUMED_LINKS_FACTOR = 1.5
"""Factor on both ends of the times over assumed links, at least: nodes of the same GPU and links differ in how many of
their GPUs a job uses and in what else the network carries."""


def retarget_collectives(
    program: Program, source: Cluster | None, target: Cluster, layouts: tuple[Layout, Layout] | None = None
) -> pl.DataFrame:
    """Predict the durations of a program's collectives on a cluster.

    The transfer is multiplied by model(target) / model(source); the time of waiting for other ranks is kept. A group of
    one rank neither waits nor transfers. Where the source cluster is unknown, or the group had one rank there, the
    model's time on the target replaces the transfer.

    Example: an all-reduce took 900 us, of which 400 us transfer. The model says 380 us on the source and 760 us on the
    target. The prediction is 500 + 400 * 760 / 380 = 1300 us.

    Args:
        program: The program.
        source: Cluster of the trace; None if it is unknown.
        target: Cluster to predict.
        layouts: Layouts of the trace and on the target; None where the layout stays.

    Returns:
        ``row`` in the kernel table; ``transfer_us`` as measured; ``time_us``, ``low_us``, ``high_us`` and ``method`` on
        the target, null where they are unknown; ``alone``, whether the group has only one rank left.

    Raises:
        ClusterError: The job doesn't fit on the cluster.
    """
    old = _list_recorded(program, source)
    new = relayout_collectives(old, infer_group_roles(program), *layouts) if layouts else old
    times = _compute_times(program, new, source, target)
    facts = program.trace.capture_facts
    is_split = layouts and facts and find_stack(facts.stack).hides_exchanges
    return _hide_exchanges(program, times, layouts[1].tp) if layouts and is_split else times


def _hide_exchanges(program: Program, times: pl.DataFrame, ranks: int) -> pl.DataFrame:
    """Leave of the inserted exchanges of tensor parallelism the piece that no product hides; all of it at most."""
    inserted = program.kernels.select("group_description").with_row_index("row")
    put_in = inserted.filter(pl.col("group_description") == TP_GROUP)["row"]
    shown = pl.when(pl.col("row").is_in(put_in.implode())).then(1 / ranks).otherwise(1.0)
    return times.with_columns(pl.col("time_us", "low_us") * shown)


@keep_on_first
def _list_recorded(program: Program, source: Cluster | None) -> pl.DataFrame:
    """List the program's collectives; sizes that weren't recorded are told by the times on their cluster."""
    listed = list_collectives(program.kernels, program.trace.world_size)
    return infer_sizes_from_times(listed, _get_durations_us(program, listed), source) if source else listed


@keep_on_first
def _predict_recorded_times(program: Program, source: Cluster, size: str) -> pl.DataFrame:
    """Predict the times of the program's collectives on their own cluster, which serve all targets."""
    return _predict_times(_list_recorded(program, source), source, size)


def _get_durations_us(program: Program, calls: pl.DataFrame) -> pl.Series:
    """Return how long calls took."""
    return program.kernels["dur_ns"].gather(calls["row"]) / 1e3


def retarget_to_target(
    program: Program, source: Cluster | None, target: Target, layouts: tuple[Layout, Layout] | None = None
) -> pl.DataFrame | None:
    """Predict the same on a target's cluster, or over the links that are assumed; None where neither is known.

    Intervals of times over assumed links hold those over the links of other known nodes of the GPU.

    Args:
        program: The program.
        source: Cluster of the trace; None if it is unknown.
        target: The target.
        layouts: Layouts of the trace and on the target; None where the layout stays.

    Raises:
        ClusterError: The job doesn't fit on the cluster.
    """
    if target.cluster is not None:
        return retarget_collectives(program, source, target.cluster, layouts)
    if target.links is None:
        return None
    factor = max(compute_rate_spread(target.links), MIN_ASSUMED_LINKS_FACTOR)
    found = retarget_collectives(program, source, target.links, layouts)
    return found.with_columns(low_us=pl.col("low_us") / factor, high_us=pl.col("high_us") * factor)


def _compute_times(program: Program, new: pl.DataFrame, source: Cluster | None, target: Cluster) -> pl.DataFrame:
    """Compute the times of the program's collectives, which are ``new`` on the target.

    Unless all ranks were read, even the shortest of similar collectives may contain waiting, as the rank that was read
    may never come last. So the time above the model's interval is taken for waiting too. The prediction's interval
    contains both views.
    """
    old = _list_recorded(program, source)
    likely = _compute_ratios(program, new, source, target, "bytes")
    sides = {
        name: likely
        if all(calls[size].equals(calls["bytes"]) for calls in (old, new))
        else _compute_ratios(program, new, source, target, size)
        for name, size in RATIO_SIZES.items()
    }
    dur_us = _get_durations_us(program, old)
    table = likely.with_columns(*(side["ratio"].alias(name) for name, side in sides.items()), dur_us=dur_us)
    all_ranks_read = program.collectives is not None and len(program.ranks) == program.trace.world_size
    limited = pl.col("dur_us") if all_ranks_read else pl.min_horizontal("dur_us", "limit_us")
    table = table.with_columns(transfer_us=limited)
    ends = [
        _add_waiting(transfer, pl.col(ratio) * width)
        for transfer in ("transfer_us", "dur_us")
        for ratio in RATIO_SIZES
        for width in (1 / pl.col("width"), pl.col("width"))
    ]
    timed = {
        "time_us": _add_waiting("transfer_us", pl.col("ratio")),
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


def _add_waiting(transfer: str, factor: pl.Expr) -> pl.Expr:
    """Add waiting to the scaled transfer; an ``absolute`` factor replaces the transfer instead."""
    waiting = pl.when(pl.col("alone")).then(0.0).otherwise(pl.col("dur_us") - pl.col(transfer))
    return waiting + pl.when(pl.col("absolute")).then(1.0).otherwise(pl.col(transfer)) * factor


def _compute_ratios(
    program: Program, new: pl.DataFrame, source: Cluster | None, target: Cluster, size: str
) -> pl.DataFrame:
    """Compute for each ``row`` the ``ratio`` of the model's times and the ``width`` of its interval.

    Further columns: ``limit_us``, the longest transfer that the source's model allows; ``absolute``, whether ``ratio``
    is the target's time itself; ``same``, whether the call is the same on both clusters; ``alone``, whether the group
    has one rank on the target.
    """
    there = _predict_times(new, target, size)
    alone = pl.col("ranks") <= 1
    if source is None:
        nothing = {"limit_us": pl.lit(None, pl.Float64), "same": pl.lit(False), "absolute": pl.lit(True)}
        return there.select("row", "width", ratio="time_us", alone=alone, **nothing)
    old, here = _list_recorded(program, source), _predict_recorded_times(program, source, size)
    table = there.with_columns(
        before_us=here["time_us"],
        width_before=here["width"],
        nodes_before=here["nodes"],
        ranks_before=old["ranks"],
        alike=_find_unchanged(old, new),
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
        same=pl.col("alike") & joined & pl.lit(_get_node_properties(source) == _get_node_properties(target)),
        alone=alone,
        absolute=absolute,
    )


def _find_unchanged(old: pl.DataFrame, new: pl.DataFrame) -> pl.Expr:
    """Return which calls are the same in both layouts."""
    if new is old:
        return pl.lit(value=True)
    return pl.all_horizontal(*(old[name].eq_missing(new[name]) for name in (*CALL_COLUMNS, *SIZE_COLUMNS)))


def _get_node_properties(cluster: Cluster) -> tuple[object, ...]:
    """Return the properties of a cluster's node on which collective times depend."""
    links = cluster.fabric, cluster.pcie_gen, cluster.pair_gbps, cluster.peer_access, cluster.measured
    return cluster.gpu, cluster.gpus_per_node, *links


def _predict_times(calls: pl.DataFrame, cluster: Cluster, size: str) -> pl.DataFrame:
    """Predict ``time_us``, ``width`` and ``nodes`` of calls with the message size of one column."""
    key = [*CALL_COLUMNS, "bytes"]
    wanted = calls.select("row", *CALL_COLUMNS, bytes=pl.col(size))
    timed = predict_on_cluster(wanted.select(key).unique(), cluster).with_columns(
        width=pl.when(pl.col("time_us") > 0).then(pl.col("high_us") / pl.col("time_us")).otherwise(1.0)
    )
    columns = timed.select(*key, "time_us", "width", "nodes")
    return wanted.join(columns, on=key, how="left", nulls_equal=True, maintain_order="left")


def fill_collective_times(times: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Fill the times of collectives, and their transfer, into the predicted kernels; unknown times are null.

    Args:
        times: Predicted times of all kernels.
        collectives: As :func:`retarget_collectives` returns them.
    """
    changed = ("time_us", "low_us", "high_us", "method")
    joined = collectives.drop("alone")
    rows = times.with_row_index("row").join(joined, on="row", how="left", suffix="_new", maintain_order="left")
    mine = pl.col("family") == "collective"
    return rows.with_columns(pl.when(mine).then(f"{name}_new").otherwise(name).alias(name) for name in changed).select(
        *times.columns, "transfer_us"
    )
