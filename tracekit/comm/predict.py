"""Times of collectives on a cluster."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache

import numpy as np
import polars as pl

from predictors import Gpu
from tracekit.arrays import Floats
from tracekit.comm.calibrate import Learned, learn, length
from tracekit.comm.calls import BUS_FACTOR, Calls, Links, bus_factor
from tracekit.comm.cluster import Cluster
from tracekit.comm.constants import Constants, load_constants
from tracekit.comm.errors import ClusterError
from tracekit.comm.law import NVLS_DTYPES, times
from tracekit.comm.names import load_cluster
from tracekit.comm.network import shares_gbps
from tracekit.units import many

NEEDED = ("collective", "bytes", "ranks", "dtype")

MEASURED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
MOST_MEASURED_RANKS = 8
"""Of a node in the tables that the constants were fitted on, and the collectives in them."""

SDS = 1.645
"""Standard deviations that hold 90 %."""

ALGORITHMS = ("ring", "tree", "nvls", "nvls-tree", "direct")


def predict(
    collectives: pl.DataFrame,
    cluster: Cluster | str,
    *,
    algorithm: str | None = None,
    constants: Constants | None = None,
) -> pl.DataFrame:
    """How long each collective takes on a cluster.

    Ranks fill one node after the other, unless ``nodes`` says on how many they sit, evenly. What was ``measured`` on
    the cluster sets its latencies and rates; without, the interval is that of held-out machines (docs/clusters.md).

    Args:
        collectives: A row each: ``collective`` (a key of ``BUS_FACTOR``), ``bytes`` (of the whole buffer, as
            nccl-tests counts it), ``ranks``, ``dtype``, if known ``nodes``, and ``custom`` where a job may have
            all-reduces of its own (vLLM, SGLang, TensorRT-LLM, symmetric memory).
        cluster: Where they run, or the name that ``load_cluster`` takes.
        algorithm: One of ``ALGORITHMS`` that a job forces by NCCL_ALGO; None for the fastest. Infinity where it can't.
        constants: Of the model; None for the shipped ones.

    Returns:
        The frame with ``time_us``, ``low_us``, ``high_us`` (90 %), ``algorithm`` and ``busbw_gbps`` (1e9 bytes/s;
        null for one rank). A row without a known collective, bytes or ranks has nulls.

    Raises:
        ClusterError: A column is missing or has what can't be, the algorithm is unknown, or a row has more ranks or
            nodes than the cluster.
    """
    if algorithm not in (None, *ALGORITHMS):
        raise ClusterError(f"unknown algorithm {algorithm!r}:", f"take one of {', '.join(ALGORITHMS)}.")
    cluster = load_cluster(cluster) if isinstance(cluster, str) else cluster
    learned = (_learn(cluster, constants) if constants else _learned(cluster)) if cluster.measured else None
    constants = constants or load_constants()
    table = _placed(collectives, cluster)
    known = table["collective"].is_in(list(BUS_FACTOR)) & table["bytes"].is_not_null() & table["ranks"].is_not_null()
    parts = [
        _predicted(part, cluster, constants, learned, algorithm)
        for part in table.filter(known).partition_by("collective", maintain_order=True)
    ]
    columns = pl.concat([_empty(), *parts])
    joined = table.select("row").join(columns, on="row", how="left", maintain_order="left").drop("row")
    return pl.concat([collectives, joined], how="horizontal")


def _empty() -> pl.DataFrame:
    numbers = dict.fromkeys(("time_us", "low_us", "high_us", "busbw_gbps"), pl.Float64)
    return pl.DataFrame(schema={"row": pl.UInt32, **numbers, "algorithm": pl.String}).select(
        "row", "time_us", "low_us", "high_us", "algorithm", "busbw_gbps"
    )


def _placed(collectives: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """Rows with a number and the nodes that their ranks sit on."""
    if missing := [name for name in NEEDED if name not in collectives.columns]:
        raise ClusterError(f"the table of collectives has no column {missing[0]!r}.", f"It needs {', '.join(NEEDED)}.")
    _check_counts(collectives)
    fewest = fewest_nodes(cluster)
    given = pl.col("nodes").cast(pl.Float64) if "nodes" in collectives.columns else pl.lit(None, pl.Float64)
    custom = pl.col("custom").fill_null(False) if "custom" in collectives.columns else pl.lit(False)
    columns = pl.col("collective", "dtype").cast(pl.String), pl.col("bytes", "ranks").cast(pl.Float64)
    own = custom & cluster.peer_access
    placed = {"nodes": pl.coalesce(given, fewest), "fill": given.is_null()}
    table = collectives.select(*columns, **placed, custom=own).with_row_index("row")
    wrong = table.filter(
        (pl.col("nodes") < fewest) | (pl.col("nodes") > cluster.nodes) | (pl.col("nodes") > pl.col("ranks"))
    )
    if wrong.height:
        row = wrong.row(0, named=True)
        size = "unknown size" if row["bytes"] is None else f"{row['bytes']:.0f} bytes"
        raise ClusterError(
            f"{row['collective'] or 'a collective'} of {size} over {many(int(row['ranks']), 'rank')} on "
            f"{many(int(row['nodes']), 'node')} doesn't fit on {cluster.slug} ({many(cluster.nodes, 'node')} of "
            f"{many(cluster.gpus_per_node, 'GPU')}).",
            f"Name a larger cluster, or predict a job that fits: --world-size {cluster.gpus}.",
        )
    return table


def fewest_nodes(cluster: Cluster) -> pl.Expr:
    """Nodes that ``ranks`` sit on that fill one after the other."""
    return (pl.col("ranks") / cluster.gpus_per_node).ceil()


def _check_counts(collectives: pl.DataFrame) -> None:
    for name, least in (("bytes", 0), ("ranks", 1)):
        column = collectives[name]
        if not (column.dtype.is_numeric() or column.dtype == pl.Null):
            raise ClusterError(f"column {name!r} must be numbers, not {column.dtype}.")
        value = column.cast(pl.Float64)
        right = value.is_finite() & (value >= least)
        if name == "ranks":
            right &= value == value.floor()
        if wrong := column.filter(~right).to_list():
            raise ClusterError(f"{name} must be {'whole ' * (name == 'ranks')}numbers from {least} on, not {wrong[0]}.")


def _predicted(
    part: pl.DataFrame, cluster: Cluster, constants: Constants, learned: Learned | None, only: str | None
) -> pl.DataFrame:
    """Times of the rows of one collective."""
    calls, links = _carried(part, cluster, constants)
    width = _width(calls, links, cluster, constants)
    if learned is None:
        time_us, algorithm = times(calls, links, constants, only)
    else:
        time_us, algorithm, sd = learned.times(calls, links, constants, only)
        known = (calls.collective in MEASURED) & ~np.asarray(calls.custom)
        width = np.where(known, np.minimum(width, np.exp(SDS * sd)), width)
    bus = np.divide(
        calls.size_bytes * bus_factor(calls.collective, calls.ranks),
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


def _carried(part: pl.DataFrame, cluster: Cluster, constants: Constants) -> tuple[Calls, Links]:
    """The rows of one collective, and what carries them."""
    collective = part["collective"][0]
    ranks = part["ranks"].to_numpy()
    if collective == "send_recv":
        ranks = np.minimum(ranks, 2.0)
    nodes = np.minimum(part["nodes"].to_numpy(), ranks)
    dtype = part["dtype"].str.to_lowercase().str.strip_prefix("torch.")
    adds = dtype.is_in(list(NVLS_DTYPES)).fill_null(True).to_numpy()
    calls = Calls(collective, part["bytes"].to_numpy(), ranks, nodes, adds, part["custom"].to_numpy())
    fill = part["fill"].to_numpy() & (collective != "send_recv")
    shares = shares_gbps(cluster, collective, ranks, nodes, fill) if cluster.network_gbps else cluster.network_gbps
    return calls, replace(links_of(cluster, np.ceil(ranks / nodes), constants), network_gbps=shares)


@cache
def _learned(cluster: Cluster) -> Learned:
    return _learn(cluster, load_constants())


def _learn(cluster: Cluster, constants: Constants) -> Learned:
    """What the collectives measured on a cluster say of it."""
    rows = pl.DataFrame([asdict(one) for one in cluster.measured], schema_overrides={"nodes": pl.Int64})
    table = _placed(rows, replace(cluster, nodes=max(one.ranks for one in cluster.measured)))
    parts = table.with_columns(rows["time_us"]).partition_by("collective", maintain_order=True)
    carried = [_carried(part, cluster, constants) for part in parts]
    measured_us = np.concatenate([part["time_us"].to_numpy() for part in parts])
    return learn(carried, constants, measured_us, known=_generation_known(cluster, constants))


def _generation_known(cluster: Cluster, constants: Constants) -> bool:
    """Whether nodes of such GPUs and links were measured."""
    known = constants.system(cluster.gpu.vendor, cluster.gpu.compute_capability)[0] is not None
    return known and cluster.fabric == "nvswitch"


def links_of(cluster: Cluster, per_node: Floats, constants: Constants) -> Links:
    """What carries collectives of so many ranks on each node.

    Args:
        cluster: Where they run.
        per_node: Ranks on each node.
        constants: Of the model.
    """
    pcie = per_node > cluster.linked_gpus
    if cluster.link_gbps is None:
        pcie = np.full(per_node.shape, True)
    # A bridge's links are wider than the host's; a mesh has one of a GPU's links to each of the others.
    linked = np.full(per_node.shape, cluster.link_gbps or cluster.pcie_gbps)
    if cluster.pair_gbps:
        linked = np.minimum(linked, cluster.pair_gbps * np.maximum(per_node - 1, 1))
    staged = 1.0 if cluster.peer_access else constants.pcie.staged
    hosts = cluster.pcie_gbps * np.where(per_node > 2, min(staged, constants.pcie.beyond_two), staged)
    capability = cluster.gpu.compute_capability
    major = int(capability.split(".")[0]) if cluster.gpu.vendor == "nvidia" else 0
    return Links(
        gbps=np.where(pcie, hosts, linked),
        copies_gbps=copies_gbps(cluster.gpu, constants),
        network_gbps=cluster.network_gbps,
        network=cluster.network,
        pcie=pcie,
        nvls=cluster.fabric == "nvswitch" and major >= 9,
        capability=major,
        system=constants.system(cluster.gpu.vendor, capability)[1],
    )


def copies_gbps(gpu: Gpu, constants: Constants) -> float:
    """That all SMs of a GPU copy, in 1e9 bytes/s.

    Args:
        gpu: Which.
        constants: Of the model.
    """
    return constants.bytes_per_clock * gpu.sms * gpu.boost_clock_mhz / 1e3


def _width(calls: Calls, links: Links, cluster: Cluster, constants: Constants) -> Floats:
    """Half width of the interval as a factor, by what the model has seen."""
    interval = constants.interval
    measured = _generation_known(cluster, constants) and calls.collective in MEASURED
    few = calls.ranks_per_node <= MOST_MEASURED_RANKS
    inside = np.where(measured & few & ~np.asarray(calls.custom), interval["known"], interval["unseen"])
    if cluster.gpu.vendor == "amd":
        inside = np.full(calls.ranks.shape, interval["rccl"])
    crowded = calls.ranks_per_node > 2
    pair = interval["pcie"] if cluster.peer_access else interval["staged"]
    hosts = np.where(crowded, interval["pcie_beyond_two"], pair)
    one = np.where(links.pcie & (calls.ranks_per_node > 1), hosts, inside)
    width: Floats = np.where(calls.nodes > 1, np.maximum(one, _network_width(calls, interval)), one)
    return width


def _network_width(calls: Calls, interval: Mapping[str, float]) -> Floats:
    """Half width between nodes: short messages are missed most; it narrows slower than times grow."""
    part = length(calls.size_bytes)
    width: Floats = interval["network_short"] ** (1 - part) * interval["network"] ** part
    return width
