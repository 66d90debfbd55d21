"""Identify the cluster on which a trace was recorded: given, or assumed to be the usual nodes of its GPU."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from predictors import Gpu, Resolution
from tracekit.comm import Cluster, ClusterError, load_cluster
from tracekit.comm.cluster import load_reference_nodes
from tracekit.messages import Message, layouts
from tracekit.messages import predictions as told
from tracekit.prediction.model import Target
from tracekit.run import MeasuredRun

WORKER_FILE_NAME = re.compile(r"([^/\\]+)_\d+\.\d+\.pt\.trace\.json")
"""File name that torch's tensorboard_trace_handler gives a rank: host, process, time."""


@dataclass(frozen=True, slots=True)
class SourceCluster:
    """The cluster on which the trace was recorded.

    Attributes:
        cluster: The cluster; None if it is unknown.
        note: How it was inferred, or why it is unknown; None if the user gave it.
        is_asked_for: Whether the user named a cluster; if not, it only serves to predict over assumed links.
    """

    cluster: Cluster | None
    note: Message | None = None
    is_asked_for: bool = True

    @property
    def shown(self) -> Cluster | None:
        """The cluster that the measured job is said to have run on, and is priced by."""
        return self.cluster if self.is_asked_for else None


UNKNOWN_CLUSTER = SourceCluster(None)


def identify_source_cluster(run: MeasuredRun, name: str | None = None) -> SourceCluster:
    """Identify the cluster of a run.

    Args:
        run: The measured run.
        name: Name of the cluster, if the user gave one.

    Raises:
        ClusterError: The named cluster has another GPU than the trace, or fewer GPUs than the trace has ranks.
    """
    if name is not None:
        return SourceCluster(_check_cluster(load_cluster(name), run))
    if run.gpu is None:
        return SourceCluster(None, told.SOURCE_CLUSTER_UNKNOWN(reason=told.SOURCE_CLUSTER_WITHOUT_GPU()))
    ranks = run.trace.world_size
    usual = load_reference_nodes().get(run.gpu.slug)
    node = load_cluster(usual) if usual else load_cluster(f"8x{run.gpu.slug}")
    hosts = _count_hosts(run)
    nodes = hosts or -(-ranks // node.gpus_per_node)
    if nodes == 1:
        return _assume_cluster(f"{node.gpus_per_node}x{run.gpu.slug}", nodes)
    if usual is None or node.network == "none":
        reason = told.SOURCE_CLUSTER_WITHOUT_NETWORK(ranks=ranks, nodes=nodes)
        return SourceCluster(None, told.SOURCE_CLUSTER_UNKNOWN(reason=reason))
    if hosts and ranks < nodes * node.gpus_per_node:
        found = _shrink_nodes(node, hosts, ranks // hosts)
        return SourceCluster(found, told.SOURCE_CLUSTER_FROM_HOSTS(cluster=found.slug, hosts=hosts))
    return _assume_cluster(f"{nodes}x{usual}", nodes)


def _assume_cluster(name: str, nodes: int) -> SourceCluster:
    found = load_cluster(name)
    return SourceCluster(found, told.SOURCE_CLUSTER_ASSUMED(cluster=found.slug, nodes=nodes))


def identify_needed_cluster(
    run: MeasuredRun, name: str | None, clusters: Sequence[str], targets: Sequence[Target]
) -> SourceCluster:
    """Identify the cluster of a run where targets need it: where the user named one, or links are assumed.

    A captured program of several ranks ran on none.

    Args:
        run: The measured run.
        name: Name of the cluster, if the user gave one.
        clusters: Names of the target clusters.
        targets: The targets.

    Raises:
        ClusterError: As :func:`identify_source_cluster`.
    """
    asked = bool(clusters) or name is not None
    is_captured = name is None and run.program.has_predicted_times and run.trace.world_size > 1
    if is_captured or not (asked or any(target.links for target in targets)):
        return UNKNOWN_CLUSTER
    return replace(identify_source_cluster(run, name), is_asked_for=asked)


def find_usual_nodes(gpu: Gpu, ranks: int) -> Cluster | None:
    """Return as many usual nodes of a GPU as some ranks need; None where these or their network aren't known."""
    usual = load_reference_nodes().get(gpu.slug)
    if usual is None:
        return None
    node = load_cluster(usual)
    nodes = -(-ranks // node.gpus_per_node)
    if nodes == 1:
        return load_cluster(f"{node.gpus_per_node}x{gpu.slug}")
    return None if node.network == "none" else load_cluster(f"{nodes}x{usual}")


def fill_source_gpu(run: MeasuredRun, source: SourceCluster) -> MeasuredRun:
    """Fill in the GPU of a run from its cluster, where the trace doesn't name one."""
    if run.source is not None or source.cluster is None:
        return run
    return run.replace_source(Resolution(source.cluster.gpu, source.cluster.slug, "slug"))


def _count_hosts(run: MeasuredRun) -> int | None:
    """Count the hosts of the ranks, if evenly filled; None unless all ranks were read and their files name hosts."""
    found = [WORKER_FILE_NAME.search(rank.source) for rank in run.ranks]
    names = {match[1] for match in found if match}
    everyone = all(found) and len(found) == run.trace.world_size
    return len(names) if everyone and len(found) % len(names) == 0 else None


def _shrink_nodes(node: Cluster, nodes: int, gpus: int) -> Cluster:
    """Return a cluster of nodes with fewer GPUs each, and these GPUs' part of the network adapters."""
    adapters = max(round(node.nics_per_node * gpus / node.gpus_per_node), 1)
    slug = f"{nodes}x{gpus}x{node.gpu.slug}"
    return replace(node, slug=slug, nodes=nodes, gpus_per_node=gpus, nics_per_node=adapters)


def _check_cluster(cluster: Cluster, run: MeasuredRun) -> Cluster:
    if run.gpu is not None and cluster.gpu.slug != run.gpu.slug:
        other = layouts.SOURCE_CLUSTER_OF_OTHER_GPU
        raise ClusterError(other(cluster=cluster.slug, gpu=cluster.gpu.slug, source_gpu=run.gpu.slug))
    if cluster.gpus < run.trace.world_size:
        raise ClusterError(
            layouts.SOURCE_CLUSTER_TOO_SMALL(cluster=cluster.slug, gpus=cluster.gpus, ranks=run.trace.world_size)
        )
    return cluster
