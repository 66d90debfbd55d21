"""What the ranks of a collective have of their nodes' networks, where the last node has fewer of them."""

import numpy as np

from tracekit.arrays import Bools, Floats
from tracekit.comm.cluster import Cluster


def shares_gbps(cluster: Cluster, collective: str, ranks: Floats, nodes: Floats, fill: Bools) -> Floats:
    """Of the network, for each rank on the mean node: the node that is through last holds up the others.

    Ranks that fill one node after the other have whole adapters on the last, where the rest of it is idle. Elsewhere
    they sit evenly, beside others that have their share.

    Args:
        cluster: Where they run.
        collective: Which.
        ranks: That take part.
        nodes: That they sit on.
        fill: Whether they fill one node after the other.

    Returns:
        In 1e9 bytes/s, in one direction.
    """
    last = ranks - (nodes - 1) * cluster.gpus_per_node
    fewest = np.where(fill, last, np.floor(ranks / nodes))
    most = np.where(fill, np.minimum(ranks, cluster.gpus_per_node), np.ceil(ranks / nodes))
    slowest = _node_gbps(cluster, fewest, fill) * nodes / ranks
    if collective != "all_to_all":
        return slowest
    # Each rank sends to those on other nodes: of few ranks on a node each sends more, many send more in all.
    parts = [here * (ranks - here) / ranks / _node_gbps(cluster, here, fill) for here in (fewest, most)]
    even = (nodes - 1) / nodes
    return np.divide(even, np.maximum(*parts), out=slowest, where=nodes > 1)


def _node_gbps(cluster: Cluster, ranks: Floats, idle: Bools) -> Floats:
    """Of so many ranks on a node; more than their share where the node's other GPUs are idle."""
    share = cluster.network_gbps
    adapter = min(cluster.nic_gbit / 8 / cluster.oversubscription, cluster.pcie_gbps)
    rate: Floats = np.minimum(ranks * np.where(idle, max(share, adapter), share), cluster.gpus_per_node * share)
    return rate
