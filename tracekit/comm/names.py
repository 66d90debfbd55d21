"""Names of clusters: ``8xh100-sxm``, ``4x8xh100-sxm@ndr400``, ``16xp5`` or a file's name."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from predictors import Gpu, list_gpus, load_gpu
from predictors.errors import AmbiguousGpuError, UnknownGpuError
from tracekit.comm.cluster import FOLDER, Cluster, aliases, described, from_file, platforms, reaches_peers
from tracekit.comm.errors import ClusterError, UnknownClusterError

KINDS: Mapping[str, str] = {
    **dict.fromkeys(("edr", "hdr", "ndr", "xdr", "ib"), "ib"),
    "roce": "roce",
    "efa": "efa",
    **dict.fromkeys(("eth", "ethernet", "tcp"), "ethernet"),
}
"""Kind of network by how it is written before its rate; the letters of InfiniBand name generations."""

MOST_GPUS = 1_000_000
_WRITTEN = re.compile(r"(?:(?P<nodes>\d+)x)?(?P<gpus>\d+)x(?P<gpu>[^@]+?)(?:@(?P<network>.+))?", re.IGNORECASE)
_NODES = re.compile(r"(?P<nodes>\d+)x(?P<stem>[^@]+)", re.IGNORECASE)
_NETWORK = re.compile(r"(?P<kind>[a-z][a-z-]*?)-?(?P<gbit>\d+(?:\.\d+)?)g?", re.IGNORECASE)


def list_clusters() -> list[str]:
    """Names of the clusters and cloud instances that tracekit knows, sorted."""
    return described()


def load_cluster(name: str) -> Cluster:
    """The cluster of that name.

    Args:
        name: ``8xh100-sxm`` (GPUs of one node), ``4x8xh100-sxm@ndr400`` (nodes, GPUs of each, and the network of
            each GPU in Gbit/s), a name that ``list_clusters`` gives, a path that ends in '.toml', or so many of one
            of these two: ``16xp5``, ``16x./lab.toml``.

    Raises:
        ClusterError: Nothing of that name, or a description that is wrong.

    Examples:
        >>> load_cluster("4x8xh100-sxm@ndr400").gpus
        32
    """
    text = name.strip()
    if one := _described(text):
        return _sized(one, name)
    several = _NODES.fullmatch(text)
    if several and (one := _described(several["stem"])):
        count = int(several["nodes"])
        return _sized(replace(one, slug=f"{count}x{one.slug}", nodes=one.nodes * count), name)
    written = _WRITTEN.fullmatch(text)
    if not written:
        raise UnknownClusterError(name, aliases())
    return _sized(_assembled(name, written), name)


def _described(text: str) -> Cluster | None:
    """The cluster of a file, by its path or its name; None where neither is one."""
    if text.endswith(".toml") and (Path(text).exists() or not _NODES.fullmatch(text)):
        return from_file(Path(text))
    found = aliases().get(text.lower())
    return from_file(FOLDER / f"{found}.toml") if found else None


def _assembled(name: str, written: re.Match[str]) -> Cluster:
    gpu = _gpu(name, written["gpu"])
    nodes, gpus = int(written["nodes"] or 1), int(written["gpus"])
    network, gbit = _network(name, written["network"]) if written["network"] else ("none", 0.0)
    if nodes > 1 and network == "none":
        raise ClusterError(f"cluster {name!r} has no network:", f"write it as {name}@ndr400, the Gbit/s of each GPU.")
    node = _node(gpu)
    slug = f"{f'{nodes}x' if nodes > 1 else ''}{gpus}x{gpu.slug}" + (f"@{written['network'].lower()}" if gbit else "")
    cited = {key: text for key, text in node.sources.items() if key not in ("network", "nics_per_node", "nic_gbit")}
    return replace(
        node,
        slug=slug,
        name=f"{nodes} x {gpus} {gpu.name}",
        nodes=nodes,
        gpus_per_node=gpus,
        network=network,
        nics_per_node=gpus if gbit else 0,
        nic_gbit=gbit,
        sources=MappingProxyType(cited),
    )


def _gpu(name: str, slug: str) -> Gpu:
    try:
        return load_gpu(slug)
    except AmbiguousGpuError as error:
        raise ClusterError(f"cluster {name!r}: {error}") from None
    except UnknownGpuError:
        written = name[: name.lower().index(slug.lower())]
        raise UnknownClusterError(name, [*aliases(), *(f"{written}{gpu}" for gpu in list_gpus())]) from None


def _network(name: str, text: str) -> tuple[str, float]:
    match = _NETWORK.fullmatch(text)
    kind = KINDS.get(match["kind"].lower()) if match else None
    if not match or not kind or float(match["gbit"]) <= 0:
        raise ClusterError(
            f"cluster {name!r}: can't read the network {text!r}:",
            f"write one of {', '.join(KINDS)} and the Gbit/s of each GPU, such as ndr400 or roce200.",
        )
    return kind, float(match["gbit"])


def _node(gpu: Gpu) -> Cluster:
    """The usual node around a GPU, else what the GPU's own links allow."""
    if described_by := platforms().get(gpu.slug):
        return from_file(FOLDER / f"{described_by}.toml")
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
        peer_access=reaches_peers(gpu),
        sources=sources,
    )


def _sized(cluster: Cluster, name: str) -> Cluster:
    if not 1 <= cluster.gpus <= MOST_GPUS:
        raise ClusterError(f"cluster {name!r} has {cluster.gpus:,} GPUs; it may have 1 to {MOST_GPUS:,}.")
    if cluster.nodes > 1 and cluster.network == "none":
        raise ClusterError(f"cluster {name!r} has no network: {cluster.slug!r} stands for one node.")
    return cluster
