"""The cluster that a trace was recorded on: given, else the usual nodes around its GPU."""

from dataclasses import dataclass

from tracekit.comm import Cluster, ClusterError, load_cluster
from tracekit.comm.cluster import platforms
from tracekit.replay.run import Run


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
    usual = platforms().get(run.gpu.slug)
    node = load_cluster(usual) if usual else load_cluster(f"8x{run.gpu.slug}")
    nodes = -(-run.trace.world_size // node.gpus_per_node)
    if nodes == 1:
        return SourceCluster(
            load_cluster(f"{node.gpus_per_node}x{run.gpu.slug}"), "taken to be one usual node of its GPU"
        )
    if usual is None or node.network == "none":
        return SourceCluster(None, f"{run.trace.world_size} ranks don't fit on one node and the network isn't known")
    return SourceCluster(load_cluster(f"{nodes}x{usual}"), f"taken to be {nodes} usual nodes of its GPU")


def _checked(cluster: Cluster, run: Run) -> Cluster:
    if run.gpu is not None and cluster.gpu.slug != run.gpu.slug:
        raise ClusterError(f"--source-cluster {cluster.slug} has {cluster.gpu.slug}, the trace {run.gpu.slug}.")
    if cluster.gpus < run.trace.world_size:
        raise ClusterError(
            f"--source-cluster {cluster.slug} has {cluster.gpus} GPUs, the trace {run.trace.world_size} ranks."
        )
    return cluster
