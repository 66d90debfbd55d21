"""Predict the time of collectives on a cluster."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache

import numpy as np
import polars as pl

from predictors import Gpu
from tracekit.arrays import Bools, Floats
from tracekit.comm.calibrate import ClusterCalibration, fit_calibration
from tracekit.comm.cluster import Cluster, load_cluster
from tracekit.comm.collective_calls import BUS_FACTOR, CollectiveCalls, CollectiveLinks, compute_bus_factor
from tracekit.comm.constants import CollectiveConstants, load_constants
from tracekit.comm.errors import ClusterError
from tracekit.comm.exchange import EXCHANGED, predict_exchange_times
from tracekit.comm.law import NVLS_DTYPES, predict_times
from tracekit.messages import layouts as messages


def compute_network_gbps_per_rank(
    cluster: Cluster, collective: str, ranks: Floats, nodes: Floats, fill: Bools
) -> Floats:
    """Compute the network bandwidth per rank on the mean node, limited by the slowest node.

    Ranks that fill one node after the other can use whole adapters on the last node, whose other GPUs are idle. Ranks
    that are spread evenly only use their own part of the adapters.

    Args:
        cluster: The cluster that they run on.
        collective: Name of the collective.
        ranks: Number of ranks.
        nodes: Number of nodes of the ranks.
        fill: Whether the ranks fill one node after the other.

    Returns:
        Bandwidth in 1e9 bytes/s, in one direction.
    """
    last = ranks - (nodes - 1) * cluster.gpus_per_node
    fewest = np.where(fill, last, np.floor(ranks / nodes))
    most = np.where(fill, np.minimum(ranks, cluster.gpus_per_node), np.ceil(ranks / nodes))
    slowest = _compute_node_gbps(cluster, fewest, fill) * nodes / ranks
    if collective != "all_to_all":
        return slowest
    # Each rank sends to the ranks of other nodes: each of few ranks on a node sends more, many ranks send more in all.
    parts = [here * (ranks - here) / ranks / _compute_node_gbps(cluster, here, fill) for here in (fewest, most)]
    even = (nodes - 1) / nodes
    return np.divide(even, np.maximum(*parts), out=slowest, where=nodes > 1)


def _compute_node_gbps(cluster: Cluster, ranks: Floats, idle: Bools) -> Floats:
    """Compute the network bandwidth of the ranks of one node; idle GPUs leave their part to the others."""
    share = cluster.network_gbps
    adapter = min(cluster.nic_gbit / 8 / cluster.oversubscription, cluster.pcie_gbps)
    rate: Floats = np.minimum(ranks * np.where(idle, max(share, adapter), share), cluster.gpus_per_node * share)
    return rate


REQUIRED_COLUMNS = ("collective", "bytes", "ranks", "dtype")

MEASURED_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
MAX_MEASURED_RANKS = 8
"""Largest number of ranks on a node in the tables that the constants were fitted to. ``MEASURED_COLLECTIVES`` are the
collectives in them."""

SHORT_BYTES, LONG_BYTES = 2**20, 2**26
"""Between nodes the interval narrows from the one to the other: of the published results up to 1 MiB 18 of 20 lie
inside, of those of 2 to 64 MiB 9 of 10, of longer ones 55 of 60."""

INTERVAL_SDS = 1.645
"""Standard deviations on either side of the mean that hold 90 % of a normal distribution."""

ALGORITHMS = ("ring", "tree", "nvls", "nvls-tree", "direct")
_NO_RESULT = pl.DataFrame(
    schema={
        "row": pl.UInt32,
        **dict.fromkeys(("time_us", "low_us", "high_us"), pl.Float64),
        "algorithm": pl.String,
        "busbw_gbps": pl.Float64,
    }
)


def predict(
    collectives: pl.DataFrame,
    cluster: Cluster | str,
    *,
    algorithm: str | None = None,
    constants: CollectiveConstants | None = None,
) -> pl.DataFrame:
    """Predict how long each collective takes on a cluster.

    Ranks fill one node after the other, unless ``nodes`` gives the number of nodes; then they are spread evenly. If the
    cluster has ``measured`` collectives, its latencies and rates are calibrated to them. Otherwise the interval is that
    of machines held out of the fit (docs/explanation/collectives.md).

    Args:
        collectives: One row each: ``collective`` (a key of ``BUS_FACTOR``), ``bytes`` (of the whole buffer, as
            nccl-tests counts it), ``ranks``, ``dtype``, ``nodes`` if known, ``custom`` where a job may have custom
            all-reduces (vLLM, SGLang, TensorRT-LLM, symmetric memory), and ``exchange`` of an all-to-all between
            experts that isn't NCCL's: library ('deepep' for its kernels alone, 'vllm' or 'trtllm' for all that the
            engine does), mode ('normal', 'low_latency') and phase ('dispatch', 'combine'), such as
            'deepep_low_latency_combine'.
        cluster: The cluster, or a name that ``load_cluster`` takes.
        algorithm: One of ``ALGORITHMS`` that a job forces by NCCL_ALGO; None for the fastest. The time is infinite
            where the algorithm cannot run.
        constants: Constants of the model; None for the shipped ones.

    Returns:
        The frame with ``time_us``, ``low_us``, ``high_us`` (90 % interval), ``algorithm`` and ``busbw_gbps`` (1e9
        bytes/s; null for one rank). A row without a known collective, bytes or ranks has nulls.

    Raises:
        ClusterError: A column is missing or has an impossible value, the algorithm or an exchange is unknown, or a row
            has more ranks or nodes than the cluster.
    """
    if algorithm not in (None, *ALGORITHMS):
        raise ClusterError(messages.ALGORITHM_UNKNOWN(algorithm=algorithm, known=list(ALGORITHMS)))
    cluster = load_cluster(cluster) if isinstance(cluster, str) else cluster
    learned = (
        (_calibrate(cluster, constants) if constants else _calibrate_cached(cluster)) if cluster.measured else None
    )
    constants = constants or load_constants()
    table = _assign_nodes(collectives, cluster)
    _check_exchanges(table, constants)
    known = pl.col("collective").is_in(list(BUS_FACTOR)) & pl.all_horizontal(pl.col("bytes", "ranks").is_not_null())
    parts = [
        _predict_collective(part, cluster, constants, learned, algorithm)
        for part in table.filter(known).partition_by("collective", maintain_order=True)
    ]
    columns = pl.concat([_NO_RESULT, *parts])
    joined = table[["row"]].join(columns, on="row", how="left", maintain_order="left").drop("row")
    return pl.concat([collectives, joined], how="horizontal")


def _assign_nodes(collectives: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """Number the rows and add the number of nodes of their ranks."""
    if missing := [name for name in REQUIRED_COLUMNS if name not in collectives.columns]:
        raise ClusterError(messages.COLLECTIVE_COLUMN_MISSING(column=missing[0], needed=list(REQUIRED_COLUMNS)))
    _check_counts(collectives)
    fewest = compute_min_nodes(cluster)
    given = pl.col("nodes").cast(pl.Float64) if "nodes" in collectives.columns else pl.lit(None, pl.Float64)
    custom = pl.col("custom").fill_null(False) if "custom" in collectives.columns else pl.lit(False)
    columns = pl.col("collective", "dtype").cast(pl.String), pl.col("bytes", "ranks").cast(pl.Float64)
    own = custom & cluster.peer_access
    exchange = pl.col("exchange").cast(pl.String) if "exchange" in collectives.columns else pl.lit(None, pl.String)
    placed = {"nodes": pl.coalesce(given, fewest), "fill": given.is_null()}
    table = collectives.select(*columns, **placed, custom=own, exchange=exchange).with_row_index("row")
    wrong = table.filter(
        (pl.col("nodes") < fewest) | (pl.col("nodes") > cluster.nodes) | (pl.col("nodes") > pl.col("ranks"))
    )
    if wrong.height:
        row = wrong.row(0, named=True)
        raise ClusterError(
            messages.COLLECTIVE_TOO_LARGE(
                collective=row["collective"] or "A collective",
                ranks=int(row["ranks"]),
                nodes=int(row["nodes"]),
                cluster=cluster.slug,
                cluster_nodes=cluster.nodes,
                gpus_per_node=cluster.gpus_per_node,
                cluster_gpus=cluster.gpus,
            )
        )
    return table


def _check_exchanges(table: pl.DataFrame, constants: CollectiveConstants) -> None:
    known = constants.exchanges.costs
    if unknown := sorted({*table["exchange"].drop_nulls()} - known.keys()):
        raise ClusterError(messages.EXCHANGE_UNKNOWN(exchange=unknown[0], known=[*known]))


def compute_min_nodes(cluster: Cluster) -> pl.Expr:
    """Compute the number of nodes of ``ranks`` that fill one node after the other."""
    return (pl.col("ranks") / cluster.gpus_per_node).ceil()


def _check_counts(collectives: pl.DataFrame) -> None:
    for name, least in (("bytes", 0), ("ranks", 1)):
        column = collectives[name]
        if not (column.dtype.is_numeric() or column.dtype == pl.Null):
            raise ClusterError(messages.COLLECTIVE_COLUMN_TYPE(column=name, type=str(column.dtype)))
        given = column.drop_nulls() if column.null_count() else column
        value = given.cast(pl.Float64).to_numpy()
        right = np.isfinite(value) & (value >= least)
        if name == "ranks":
            right &= value == np.floor(value)
        if wrong := given.filter(pl.Series(~right)).to_list():
            raise ClusterError(messages.COLLECTIVE_VALUE_INVALID(column=name, least=least, value=wrong[0]))


def _predict_collective(
    part: pl.DataFrame,
    cluster: Cluster,
    constants: CollectiveConstants,
    learned: ClusterCalibration | None,
    only: str | None,
) -> pl.DataFrame:
    """Predict the times of the rows of one collective."""
    calls, links = _build_inputs(part, cluster, constants)
    width = _compute_interval_factor(calls, links, cluster, constants)
    if learned is None:
        time_us, algorithm = predict_times(calls, links, constants, only)
    else:
        time_us, algorithm, sd = learned.predict_times(calls, links, constants, only)
        known = (calls.collective in MEASURED_COLLECTIVES) & ~np.asarray(calls.has_custom_allreduce)
        width = np.where(known, np.minimum(width, np.exp(INTERVAL_SDS * sd)), width)
    if only is None and calls.collective == EXCHANGED and part["exchange"].null_count() < part.height:
        own_us, own_width = predict_exchange_times(part["exchange"], calls, cluster.gpu.slug, constants.exchanges)
        own = ~np.isnan(own_us)
        time_us, width = np.where(own, own_us, time_us), np.where(own, own_width, width)
        algorithm = np.where(own, part["exchange"].fill_null("").to_numpy(), algorithm)
    bus = np.divide(
        calls.size_bytes * compute_bus_factor(calls.collective, calls.ranks),
        time_us * 1e3,
        out=np.full_like(time_us, np.nan),
        where=time_us > 0,
    )
    return part.select(
        "row",
        time_us=time_us,
        low_us=time_us / width,
        high_us=time_us * width,
        algorithm=pl.Series(algorithm, dtype=pl.String),
        busbw_gbps=pl.Series(bus).fill_nan(None),
    )


def _build_inputs(
    part: pl.DataFrame, cluster: Cluster, constants: CollectiveConstants
) -> tuple[CollectiveCalls, CollectiveLinks]:
    """Build the model's inputs from the rows of one collective."""
    collective = part["collective"][0]
    ranks = part["ranks"].to_numpy()
    if collective == "send_recv":
        ranks = np.minimum(ranks, 2.0)
    nodes = np.minimum(part["nodes"].to_numpy(), ranks)
    dtype = part["dtype"].str.to_lowercase().str.strip_prefix("torch.")
    adds = dtype.is_in(list(NVLS_DTYPES)).fill_null(True).to_numpy()
    calls = CollectiveCalls(collective, part["bytes"].to_numpy(), ranks, nodes, adds, part["custom"].to_numpy())
    fill = part["fill"].to_numpy() & (collective != "send_recv")
    shares = (
        compute_network_gbps_per_rank(cluster, collective, ranks, nodes, fill)
        if cluster.network_gbps
        else cluster.network_gbps
    )
    return calls, replace(build_links(cluster, np.ceil(ranks / nodes), constants), network_gbps=shares)


@cache
def _calibrate_cached(cluster: Cluster) -> ClusterCalibration:
    return _calibrate(cluster, load_constants())


def _calibrate(cluster: Cluster, constants: CollectiveConstants) -> ClusterCalibration:
    """Calibrate the model to the collectives that were measured on a cluster."""
    rows = pl.DataFrame([asdict(one) for one in cluster.measured], schema_overrides={"nodes": pl.Int64})
    table = _assign_nodes(rows, replace(cluster, nodes=max(one.ranks for one in cluster.measured)))
    parts = table.with_columns(rows["time_us"]).partition_by("collective", maintain_order=True)
    carried = [_build_inputs(part, cluster, constants) for part in parts]
    measured_us = np.concatenate([part["time_us"].to_numpy() for part in parts])
    return fit_calibration(carried, constants, measured_us, known=_is_generation_measured(cluster, constants))


def _is_generation_measured(cluster: Cluster, constants: CollectiveConstants) -> bool:
    """Return whether nodes with this GPU generation and these links were measured for the fit."""
    known = constants.find_machine_scales(cluster.gpu.vendor, cluster.gpu.compute_capability)[0] is not None
    return known and cluster.fabric == "nvswitch"


def build_links(cluster: Cluster, per_node: Floats, constants: CollectiveConstants) -> CollectiveLinks:
    """Build the links of collectives from the number of ranks on each node."""
    pcie = per_node > cluster.linked_gpus
    if cluster.link_gbps is None:
        pcie = np.full(per_node.shape, True)
    # Bridge links are faster than PCI Express. In a mesh, one of a GPU's links goes to each of the other GPUs.
    linked = np.full(per_node.shape, cluster.link_gbps or cluster.pcie_gbps)
    if cluster.pair_gbps:
        linked = np.minimum(linked, cluster.pair_gbps * np.maximum(per_node - 1, 1))
    staged = 1.0 if cluster.peer_access else constants.pcie.staged
    hosts = cluster.pcie_gbps * np.where(per_node > 2, min(staged, constants.pcie.beyond_two), staged)
    capability = cluster.gpu.compute_capability
    major = int(capability.split(".")[0]) if cluster.gpu.vendor == "nvidia" else 0
    return CollectiveLinks(
        gbps=np.where(pcie, hosts, linked),
        copy_gbps=compute_copy_gbps(cluster.gpu, constants),
        network_gbps=cluster.network_gbps,
        network=cluster.network,
        is_pcie=pcie,
        has_nvls=cluster.fabric == "nvswitch" and major >= 9,
        compute_capability_major=major,
        system=constants.find_machine_scales(cluster.gpu.vendor, capability)[1],
    )


def compute_copy_gbps(gpu: Gpu, constants: CollectiveConstants) -> float:
    """Compute the copy rate of all SMs of a GPU together, in 1e9 bytes/s."""
    return constants.bytes_per_clock * gpu.sms * gpu.boost_clock_mhz / 1e3


def _compute_interval_factor(
    calls: CollectiveCalls, links: CollectiveLinks, cluster: Cluster, constants: CollectiveConstants
) -> Floats:
    """Compute the half width of the interval as a factor, by what the fit has seen."""
    interval = constants.interval
    measured = _is_generation_measured(cluster, constants) and calls.collective in MEASURED_COLLECTIVES
    few = calls.ranks_per_node <= MAX_MEASURED_RANKS
    inside = np.where(measured & few & ~np.asarray(calls.has_custom_allreduce), interval["known"], interval["unseen"])
    if cluster.gpu.vendor == "amd":
        inside = np.full(calls.ranks.shape, interval["rccl"])
    crowded = calls.ranks_per_node > 2
    pair = interval["pcie"] if cluster.peer_access else interval["staged"]
    hosts = np.where(crowded, interval["pcie_beyond_two"], pair)
    one = np.where(links.is_pcie & (calls.ranks_per_node > 1), hosts, inside)
    width: Floats = np.where(calls.nodes > 1, np.maximum(one, _compute_network_interval_factor(calls, interval)), one)
    return width


def _compute_network_interval_factor(calls: CollectiveCalls, interval: Mapping[str, float]) -> Floats:
    """Compute the half width between nodes; the model's error is largest for short messages."""
    doublings = np.log2(np.maximum(calls.size_bytes, 1) / SHORT_BYTES)
    part = np.clip(doublings / np.log2(LONG_BYTES / SHORT_BYTES), 0, 1)
    width: Floats = interval["network_short"] ** (1 - part) * interval["network"] ** part
    return width
