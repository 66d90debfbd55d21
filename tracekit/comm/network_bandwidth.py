"""Network bandwidth per rank of a collective, also if the last node has fewer ranks."""

import numpy as np

from tracekit.arrays import Bools, Floats
from tracekit.comm.cluster import Cluster


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
