"""Checks that every cluster must pass; anyone may run them on a file of their own."""

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from tracekit.comm.cluster import FABRICS, NETWORKS, Cluster
from tracekit.comm.collective_calls import BUS_FACTOR
from tracekit.comm.predict import predict

PLAUSIBLE_RANGES: Mapping[str, tuple[float, float]] = {
    "nodes": (1, 1_000_000),
    "gpus_per_node": (1, 1024),
    "pcie_gen": (3, 7),
    "nics_per_node": (0, 1024),
    "nic_gbit": (0, 3200),
    "network_gbps": (0, 400),
    "oversubscription": (1, 64),
}
SOURCED_FACTS = ("gpu", "gpus_per_node", "fabric", "pcie_gen")
SOURCED_NETWORK_FACTS = ("network", "nics_per_node", "nic_gbit")


def check_cluster(cluster: Cluster) -> None:
    """Check that a cluster's facts are complete, sourced and plausible, and that every collective has a time on it.

    Args:
        cluster: A cluster of the database, or one from a file of your own.

    Raises:
        AssertionError: Names the cluster and everything that is wrong.
    """
    problems = [*_check_ranges(cluster), *_check_fabric(cluster), *_check_sources(cluster), *_check_times(cluster)]
    if problems:
        raise AssertionError(f"{cluster.slug}: " + "; ".join(problems))


def _check_ranges(cluster: Cluster) -> Iterator[str]:
    for key, (low, high) in PLAUSIBLE_RANGES.items():
        if not low <= getattr(cluster, key) <= high:
            yield f"{key} = {getattr(cluster, key)} is outside {low} to {high}"


def _check_fabric(cluster: Cluster) -> Iterator[str]:
    if cluster.fabric not in FABRICS or cluster.network not in NETWORKS:
        yield f"fabric {cluster.fabric!r} or network {cluster.network!r} is unknown"
    if (cluster.network == "none") != (cluster.nics_per_node * cluster.nic_gbit == 0):
        yield f"network {cluster.network!r} and {cluster.nics_per_node} adapters don't go together"
    if cluster.fabric != "pcie" and cluster.gpu.link is None:
        yield f"fabric {cluster.fabric!r}, but {cluster.gpu.slug} has no links"
    if (cluster.fabric == "mesh") != (cluster.pair_gbps is not None):
        yield f"fabric {cluster.fabric!r} and pair_gbps {cluster.pair_gbps!r} don't go together"
    if cluster.pcie_gen > cluster.gpu.pcie_gen:
        yield f"pcie_gen {cluster.pcie_gen} is above the GPU's {cluster.gpu.pcie_gen}"


def _check_sources(cluster: Cluster) -> Iterator[str]:
    numbers = [*SOURCED_FACTS, *(SOURCED_NETWORK_FACTS if cluster.network != "none" else ())]
    if cluster.pair_gbps:
        numbers.append("pair_gbps")
    yield from (f"{key} has no source" for key in numbers if len(cluster.sources.get(key, "")) < 20)


def _check_times(cluster: Cluster) -> Iterator[str]:
    sizes = [2**power for power in range(8, 34, 5)]
    rows = [(kind, size, cluster.gpus, "bfloat16") for kind in BUS_FACTOR for size in sizes]
    table = pl.DataFrame(rows, schema=["collective", "bytes", "ranks", "dtype"], orient="row")
    predicted = predict(table, cluster)
    time_us = predicted["time_us"].to_numpy()
    if cluster.gpus > 1 and not (np.isfinite(time_us).all() and (time_us > 1).all()):
        yield "a collective takes no time"
    fastest = predicted["busbw_gbps"].max()
    # NVLS reduces in the switch, so its bus bandwidth may exceed the link's.
    limit = 1.3 * max(cluster.link_gbps or 0.0, cluster.pcie_gbps)
    if isinstance(fastest, float) and fastest > limit:
        yield f"{fastest:.0f} GB/s of bus bandwidth over links of {limit / 1.3:.0f}"
