"""The cluster that a trace was recorded on: given, else the usual nodes around its GPU."""

import re
from dataclasses import dataclass, replace

from predictors import Resolution
from tracekit.comm import Cluster, ClusterError, load_cluster
from tracekit.comm.cluster import platforms
from tracekit.replay.run import Run
from tracekit.units import many

WORKER = re.compile(r"([^/\\]+)_\d+\.\d+\.pt\.trace\.json")
"""How torch's tensorboard_trace_handler names a rank's file: host, process, time."""


@dataclass(frozen=True, slots=True)
class SourceCluster:
    """Where the trace was recorded.

    Attributes:
        cluster: The cluster; None if it can't be told.
        how: How it was told, or why not, one clause.
    """

    cluster: Cluster | None
    how: str


def recognise(run: Run, name: str | None = None) -> SourceCluster:
    """The cluster of a run.

    Args:
        run: The measured run.
        name: The cluster, where the user says it.

    Raises:
        ClusterError: The named cluster has another GPU than the trace, or fewer than the trace has ranks.
    """
    if name is not None:
        return SourceCluster(_checked(load_cluster(name), run), "given")
    if run.gpu is None:
        return SourceCluster(None, "its GPU isn't known")
    ranks = run.trace.world_size
    usual = platforms().get(run.gpu.slug)
    node = load_cluster(usual) if usual else load_cluster(f"8x{run.gpu.slug}")
    hosts = _hosts(run)
    nodes = hosts or -(-ranks // node.gpus_per_node)
    if nodes == 1:
        return SourceCluster(
            load_cluster(f"{node.gpus_per_node}x{run.gpu.slug}"), "assumed to be one usual node of its GPU"
        )
    if usual is None or node.network == "none":
        return SourceCluster(None, f"{many(ranks, 'rank')} on {many(nodes, 'node')} whose network isn't known")
    if hosts and ranks < nodes * node.gpus_per_node:
        return SourceCluster(_smaller(node, hosts, ranks // hosts), f"told by the names of {hosts} hosts")
    return SourceCluster(load_cluster(f"{nodes}x{usual}"), f"assumed to be {many(nodes, 'usual node')} of its GPU")


def with_gpu(run: Run, source: SourceCluster) -> Run:
    """``run`` with the GPU of its cluster, where the trace doesn't name one."""
    if run.source is not None or source.cluster is None:
        return run
    return replace(run, source=Resolution(source.cluster.gpu, source.cluster.slug, "slug"))


def _hosts(run: Run) -> int | None:
    """How many hosts the ranks sit on, evenly; None unless all were read and their files name them."""
    found = [WORKER.search(rank.source) for rank in run.ranks]
    names = {match[1] for match in found if match}
    everyone = all(found) and len(found) == run.trace.world_size
    return len(names) if everyone and len(found) % len(names) == 0 else None


def _smaller(node: Cluster, nodes: int, gpus: int) -> Cluster:
    """So many nodes with fewer GPUs each, and the network that these GPUs have in whole nodes."""
    adapters = max(round(node.nics_per_node * gpus / node.gpus_per_node), 1)
    slug = f"{nodes}x{gpus}x{node.gpu.slug}"
    return replace(node, slug=slug, nodes=nodes, gpus_per_node=gpus, nics_per_node=adapters)


def _checked(cluster: Cluster, run: Run) -> Cluster:
    if run.gpu is not None and cluster.gpu.slug != run.gpu.slug:
        raise ClusterError(f"--source-cluster {cluster.slug} has {cluster.gpu.slug}, the trace {run.gpu.slug}.")
    if cluster.gpus < run.trace.world_size:
        raise ClusterError(
            f"--source-cluster {cluster.slug} has {many(cluster.gpus, 'GPU')}, "
            f"the trace {many(run.trace.world_size, 'rank')}."
        )
    return cluster
