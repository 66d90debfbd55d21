"""Parse names of clusters: ``8xh100-sxm``, ``4x8xh100-sxm@ndr400``, ``16xp5`` or a file's name."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from predictors import Gpu, list_gpus, load_gpu
from predictors.errors import AmbiguousGpuError, UnknownGpuError
from tracekit.bounds import MAX_CLUSTER_GPUS
from tracekit.comm.cluster import (
    CLUSTER_FOLDER,
    Cluster,
    has_peer_access,
    list_cluster_files,
    load_aliases,
    load_cluster_file,
    load_reference_nodes,
)
from tracekit.comm.errors import ClusterError, UnknownClusterError
from tracekit.messages import layouts as messages

NETWORK_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("edr", "hdr", "ndr", "xdr", "ib"), "ib"),
    "roce": "roce",
    "efa": "efa",
    **dict.fromkeys(("eth", "ethernet", "tcp"), "ethernet"),
}
"""Kind of network by the word before its rate; EDR to XDR are generations of InfiniBand."""

_CLUSTER_PATTERN = re.compile(
    r"(?:(?P<nodes>[0-9]{1,9})x)?(?P<gpus>[0-9]{1,9})x(?P<gpu>[^@]+?)(?:@(?P<network>.+))?", re.IGNORECASE
)
_NODE_COUNT_PATTERN = re.compile(r"(?P<nodes>[0-9]{1,9})x(?P<stem>[^@]+)", re.IGNORECASE)
_NETWORK_PATTERN = re.compile(r"(?P<kind>[a-z][a-z-]*?)-?(?P<gbit>[0-9]{1,6}(?:\.[0-9]{1,6})?)g?", re.IGNORECASE)


def list_clusters() -> list[str]:
    """List the names of the clusters and cloud instances that tracekit knows, sorted."""
    return list_cluster_files()


def load_cluster(name: str) -> Cluster:
    """Return the cluster of that name.

    Args:
        name: ``8xh100-sxm`` (GPUs of one node), ``4x8xh100-sxm@ndr400`` (nodes, GPUs of each, and the network of each
            GPU in Gbit/s), a name that ``list_clusters`` returns, a path that ends in '.toml', or a number of nodes of
            one of the last two: ``16xp5``, ``16x./lab.toml``.

    Raises:
        ClusterError: No cluster has that name, or the description is wrong.

    Examples:
        >>> load_cluster("4x8xh100-sxm@ndr400").gpus
        32
    """
    text = name.strip()
    if one := _find_cluster_file(text):
        return _check_size(one, name)
    several = _NODE_COUNT_PATTERN.fullmatch(text)
    if several and (one := _find_cluster_file(several["stem"])):
        count = int(several["nodes"])
        return _check_size(replace(one, slug=f"{count}x{one.slug}", nodes=one.nodes * count), name)
    written = _CLUSTER_PATTERN.fullmatch(text)
    if not written:
        raise UnknownClusterError.from_name(name, load_aliases())
    return _check_size(_assemble_cluster(name, written), name)


def _find_cluster_file(text: str) -> Cluster | None:
    """Load the cluster that a file describes, by its path or name; None if there is no such file."""
    if text.endswith(".toml") and (Path(text).exists() or not _NODE_COUNT_PATTERN.fullmatch(text)):
        return load_cluster_file(Path(text))
    found = load_aliases().get(text.lower())
    return load_cluster_file(CLUSTER_FOLDER / f"{found}.toml") if found else None


def _assemble_cluster(name: str, written: re.Match[str]) -> Cluster:
    gpu = _load_named_gpu(name, written["gpu"])
    nodes, gpus = int(written["nodes"] or 1), int(written["gpus"])
    network, gbit = _parse_network(name, written["network"]) if written["network"] else ("none", 0.0)
    if nodes > 1 and network == "none":
        raise ClusterError(messages.CLUSTER_WITHOUT_NETWORK(name=name))
    node = _make_usual_node(gpu)
    slug = f"{f'{nodes}x' if nodes > 1 else ''}{gpus}x{gpu.slug}" + (f"@{written['network'].lower()}" if gbit else "")
    cited = {key: text for key, text in node.sources.items() if key not in ("network", "nics_per_node", "nic_gbit")}
    return replace(
        node,
        slug=slug,
        name=f"{nodes} x {gpus} {gpu.name}",
        nodes=nodes,
        gpus_per_node=gpus,
        host_memory_gib=node.host_memory_gib * gpus / node.gpus_per_node,
        network=network,
        nics_per_node=gpus if gbit else 0,
        nic_gbit=gbit,
        sources=MappingProxyType(cited),
    )


def _load_named_gpu(name: str, slug: str) -> Gpu:
    try:
        return load_gpu(slug)
    except AmbiguousGpuError as error:
        raise ClusterError(messages.CLUSTER_GPU_AMBIGUOUS(name=name, reason=str(error))) from None
    except UnknownGpuError:
        written = name[: name.lower().index(slug.lower())]
        known = [*load_aliases(), *(f"{written}{gpu}" for gpu in list_gpus())]
        raise UnknownClusterError.from_name(name, known) from None


def _parse_network(name: str, text: str) -> tuple[str, float]:
    match = _NETWORK_PATTERN.fullmatch(text)
    kind = NETWORK_KINDS.get(match["kind"].lower()) if match else None
    if not match or not kind or float(match["gbit"]) <= 0:
        raise ClusterError(messages.CLUSTER_NETWORK_UNREADABLE(name=name, network=text, known=list(NETWORK_KINDS)))
    return kind, float(match["gbit"])


def _make_usual_node(gpu: Gpu) -> Cluster:
    """Return the usual node of a GPU, or else a node with the fabric that the GPU's own links allow."""
    if described_by := load_reference_nodes().get(gpu.slug):
        return load_cluster_file(CLUSTER_FOLDER / f"{described_by}.toml")
    fabric: Literal["nvswitch", "mesh", "bridge", "pcie"] = "pcie" if gpu.link is None else "nvswitch"
    if gpu.link and gpu.link_gpus:
        fabric = "bridge"
    sources = {"fabric": "the GPU's links, as predictors/gpus has them"}
    return Cluster(
        slug=gpu.slug,
        name=gpu.name,
        gpu=gpu,
        nodes=1,
        gpus_per_node=8,
        fabric=fabric,
        pcie_gen=gpu.pcie_gen,
        network="none",
        nics_per_node=0,
        nic_gbit=0.0,
        peer_access=has_peer_access(gpu),
        sources=sources,
    )


def _check_size(cluster: Cluster, name: str) -> Cluster:
    if not 1 <= cluster.gpus <= MAX_CLUSTER_GPUS:
        raise ClusterError(messages.CLUSTER_SIZE_INVALID(name=name, gpus=cluster.gpus, largest=MAX_CLUSTER_GPUS))
    if cluster.nodes > 1 and cluster.network == "none":
        raise ClusterError(messages.CLUSTER_IS_ONE_NODE(name=name, slug=cluster.slug))
    return cluster
