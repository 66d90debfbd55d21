"""Description of a cluster: nodes, GPUs, the links between them and the network."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from predictors import Gpu, load_gpu
from predictors.gpu import PCIE_LANE_GBPS
from predictors.toml_file import read_toml
from tracekit.bounds import MAX_CLUSTER_GPUS
from tracekit.comm.errors import ClusterError
from tracekit.comm.measured_collectives import MeasuredCollective, parse_measured_entry
from tracekit.messages import layouts as messages

CLUSTER_FOLDER = Path(__file__).with_name("clusters")
FABRICS = ("nvswitch", "mesh", "bridge", "pcie")
NETWORKS = ("ib", "roce", "efa", "ethernet", "none")

_REQUIRED_KEYS: Mapping[str, type] = {
    "name": str,
    "gpu": str,
    "gpus_per_node": int,
    "fabric": str,
    "pcie_gen": int,
    "network": str,
    "nics_per_node": int,
    "nic_gbit": float,
    "sources": dict,
    "sourced": dict,
}
_OPTIONAL_KEYS: Mapping[str, type] = {
    "rented_gpus": int,
    "host_memory_gib": float,
    "pair_gbps": float,
    "nodes": int,
    "oversubscription": float,
    "aliases": list,
    "reference": bool,
    "peer_access": bool,
    "measured": list,
}

ASSUMED_HOST_MEMORY = 2.0
"""A host's memory over that of its GPUs, where it isn't known. The nodes here with NVIDIA's GPUs for data centres have
1.4 to 4 times."""

_TEXT_CONTAINERS = ("aliases", "sources", "sourced")

_LARGEST: Mapping[str, int] = {
    "gpus_per_node": MAX_CLUSTER_GPUS,
    "rented_gpus": MAX_CLUSTER_GPUS,
    "nodes": MAX_CLUSTER_GPUS,
    "nics_per_node": MAX_CLUSTER_GPUS,
    "nic_gbit": 1_000_000,
    "host_memory_gib": 1_000_000,
    "pair_gbps": 1_000_000,
    "oversubscription": 10_000,
}
"""Largest numbers by key; those of links and networks are a thousand times the fastest ones."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: nodes of the same GPU, their links and their network.

    Attributes:
        slug: Name that ``load_cluster`` understands.
        name: Display name.
        gpu: The GPU of every node.
        nodes: Number of nodes.
        gpus_per_node: GPUs joined by the fast links: 72 for an NVL72 rack.
        fabric: 'nvswitch' (all to all through switches), 'mesh' (a link to each), 'bridge' (joins a few GPUs) or
            'pcie'.
        pcie_gen: PCI Express generation of the node.
        network: Kind of the network between nodes: 'ib', 'roce', 'efa', 'ethernet' or 'none'.
        nics_per_node: Network adapters of a node, for all its GPUs together.
        nic_gbit: Line rate of one adapter, in one direction, in 1e9 bits/s.
        rented_gpus: GPUs that are only rented together, those of a cloud's instance; 1 where any number is.
        host_memory_gib: Memory of a node's hosts together, in GiB; 0 where it isn't known.
        pair_gbps: Bandwidth between two GPUs of a mesh, in one direction, in 1e9 bytes/s; None elsewhere.
        oversubscription: Bandwidth below the leaf switches over that above them; 1 is none.
        peer_access: Whether GPUs access each other's memory over PCI Express; if not, data goes through host memory.
        measured: Collectives measured on the cluster; predictions are calibrated to them.
        sources: Source of each fact: key to citation.
    """

    slug: str
    name: str
    gpu: Gpu
    nodes: int
    gpus_per_node: int
    fabric: Literal["nvswitch", "mesh", "bridge", "pcie"]
    pcie_gen: int
    network: str
    nics_per_node: int
    nic_gbit: float
    rented_gpus: int = 1
    host_memory_gib: float = 0.0
    pair_gbps: float | None = None
    oversubscription: float = 1.0
    peer_access: bool = True
    measured: tuple[MeasuredCollective, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def link_gbps(self) -> float | None:
        """Bandwidth of a GPU's links into the fabric, in one direction, in 1e9 bytes/s; None over PCI Express."""
        return None if self.fabric == "pcie" else self.gpu.link_gbps

    @property
    def pcie_gbps(self) -> float:
        """Bandwidth of a GPU's PCI Express slot, in one direction after line coding, in 1e9 bytes/s."""
        return PCIE_LANE_GBPS[min(self.pcie_gen, self.gpu.pcie_gen)] * self.gpu.pcie_lanes

    @property
    def network_gbps(self) -> float:
        """Network bandwidth per GPU of a node, in one direction, in 1e9 bytes/s."""
        return self.nics_per_node * self.nic_gbit / 8 / self.gpus_per_node / self.oversubscription

    @property
    def host_memory_bytes(self) -> float:
        """Memory of a node's hosts together; where it isn't known, ``ASSUMED_HOST_MEMORY`` times that of its GPUs."""
        assumed = ASSUMED_HOST_MEMORY * self.gpus_per_node * self.gpu.memory_bytes
        return self.host_memory_gib * 2**30 or assumed

    @property
    def linked_gpus(self) -> int:
        """Number of GPUs of a node that the fast links join; traffic beyond them uses PCI Express."""
        if self.fabric == "pcie":
            return 1
        return min(self.gpus_per_node, self.gpu.link_gpus or self.gpus_per_node)

    def count_rented_gpus(self, used: int) -> int:
        """Return the number of GPUs that have to be rented to use some of them: whole instances."""
        return -(-used // self.rented_gpus) * self.rented_gpus


def list_cluster_files() -> list[str]:
    """List the names of the clusters that have a file, sorted."""
    return sorted(path.stem for path in CLUSTER_FOLDER.glob("*.toml"))


@cache
def load_cluster_file(path: Path) -> Cluster:
    """Load a cluster, or one node, from a TOML file.

    Raises:
        ClusterError: A key is missing, unknown or wrong.
        predictors.PredictorError: There is no such GPU.
    """
    try:
        data = read_toml(path)
    except FileNotFoundError:
        raise ClusterError(messages.CLUSTER_FILE_NOT_FOUND(path=str(path))) from None
    except OSError as error:
        raise ClusterError(messages.CLUSTER_FILE_UNREADABLE(path=str(path), reason=error.strerror)) from error
    except ValueError as error:
        raise ClusterError(messages.CLUSTER_FILE_NOT_TOML(path=str(path), reason=str(error))) from error
    _check_keys(data, path)
    gpu = load_gpu(data["gpu"])
    if gpu.link is None and data["fabric"] != "pcie":
        raise ClusterError(messages.CLUSTER_FABRIC_WITHOUT_LINKS(path=str(path), gpu=gpu.slug, fabric=data["fabric"]))
    cluster = Cluster(
        slug=path.stem,
        gpu=gpu,
        nodes=data.get("nodes", 1),
        **{key: data[key] for key in _REQUIRED_KEYS if key not in ("gpu", "sources", "sourced")},
        rented_gpus=data.get("rented_gpus", 1),
        host_memory_gib=data.get("host_memory_gib", 0.0),
        pair_gbps=data.get("pair_gbps"),
        oversubscription=data.get("oversubscription", 1.0),
        peer_access=data.get("peer_access", has_peer_access(gpu)),
        measured=tuple(parse_measured_entry(entry, str(path)) for entry in data.get("measured", [])),
        sources=MappingProxyType({key: data["sources"][name] for key, name in data["sourced"].items()}),
    )
    _check_measured(cluster, path)
    return cluster


@cache
def load_aliases() -> Mapping[str, str]:
    """Return the name of a cluster's file by every spelling of the cluster."""
    other = {alias: name for name, data in _load_files().items() for alias in data.get("aliases", [])}
    return {**other, **{name: name for name in _load_files()}}


@cache
def load_reference_nodes() -> Mapping[str, str]:
    """Return the name of the file that describes the usual node of a GPU, by the GPU's slug."""
    return {data["gpu"]: name for name, data in _load_files().items() if data.get("reference")}


def find_largest_node_gpus(gpu: Gpu) -> int | None:
    """Return the number of GPUs of the largest described node with this GPU; None if there is none."""
    return max((data["gpus_per_node"] for data in _load_files().values() if data["gpu"] == gpu.slug), default=None)


def compute_rate_spread(cluster: Cluster) -> float:
    """Compute how many times faster or slower the links of other known nodes with a cluster's GPU are; at least 1.

    Those of a node count where the cluster is one, else those of the network.
    """

    def get_rate(one: Cluster) -> float:
        return one.network_gbps if cluster.nodes > 1 else (one.pair_gbps or one.link_gbps or one.pcie_gbps)

    alike = [name for name, data in _load_files().items() if data["gpu"] == cluster.gpu.slug]
    rates = [get_rate(load_cluster_file(CLUSTER_FOLDER / f"{name}.toml")) for name in alike]
    own, others = get_rate(cluster), [rate for rate in rates if rate > 0]
    return max((max(rate / own, own / rate) for rate in others), default=1.0)


@cache
def _load_files() -> Mapping[str, Mapping[str, Any]]:
    return {
        name: tomllib.loads((CLUSTER_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        for name in list_cluster_files()
    }


def has_peer_access(gpu: Gpu) -> bool:
    """Return whether a GPU's driver allows peer access over PCI Express: a GeForce's doesn't.

    Source: S. Jeaugey of NVIDIA, NVIDIA/nccl-tests#287, "GeForce cards do not support P2P".
    """
    return "GeForce" not in gpu.name


def _check_keys(data: Mapping[str, Any], path: Path) -> None:
    kinds = {**_REQUIRED_KEYS, **_OPTIONAL_KEYS}
    if unknown := sorted(data.keys() - kinds.keys()):
        raise ClusterError(messages.CLUSTER_KEY_UNKNOWN(path=str(path), key=unknown[0], known=list(kinds)))
    if missing := [key for key in _REQUIRED_KEYS if key not in data]:
        raise ClusterError(messages.CLUSTER_KEY_MISSING(path=str(path), key=missing[0]))
    for key, value in data.items():
        if type(value) not in ((int, float) if kinds[key] is float else (kinds[key],)):
            raise ClusterError(
                messages.CLUSTER_VALUE_TYPE(path=str(path), key=key, type=kinds[key].__name__, value=f"{value!r:.60}")
            )
        if key in _TEXT_CONTAINERS:
            _check_texts(key, value, path)
        if isinstance(value, int | float) and not 0 <= value < inf:
            raise ClusterError(messages.CLUSTER_VALUE_NEGATIVE(path=str(path), key=key, value=value))
        if key in _LARGEST and value > _LARGEST[key]:
            raise ClusterError(
                messages.CLUSTER_VALUE_TOO_LARGE(path=str(path), key=key, largest=_LARGEST[key], value=f"{value!r:.60}")
            )
    _check_choices(data, path)


def _check_texts(key: str, value: list[Any] | dict[str, Any], path: Path) -> None:
    """Raise an error for an item that is no text."""
    for item in value.values() if isinstance(value, dict) else value:
        if not isinstance(item, str):
            raise ClusterError(
                messages.CLUSTER_VALUE_TYPE(path=str(path), key=key, type="strings", value=f"{item!r:.60}")
            )


def _check_choices(data: Mapping[str, Any], path: Path) -> None:
    for key, choices in (("fabric", FABRICS), ("network", NETWORKS), ("pcie_gen", tuple(PCIE_LANE_GBPS))):
        if data[key] not in choices:
            raise ClusterError(
                messages.CLUSTER_VALUE_UNKNOWN(path=str(path), key=key, known=choices, value=f"{data[key]!r:.60}")
            )
    if data.get("oversubscription", 1) < 1:
        raise ClusterError(messages.CLUSTER_OVERSUBSCRIPTION_INVALID(path=str(path), value=data["oversubscription"]))
    if (data["fabric"] == "mesh") != (data.get("pair_gbps", 0) > 0):
        raise ClusterError(messages.CLUSTER_PAIR_GBPS_MISPLACED(path=str(path)))
    if min(data["gpus_per_node"], data.get("nodes", 1), data.get("rented_gpus", 1)) < 1:
        raise ClusterError(messages.CLUSTER_WITHOUT_NODES(path=str(path)))
    joined = data["nics_per_node"] * data["nic_gbit"] > 0
    if joined != (data["network"] != "none") or (data.get("nodes", 1) > 1 and not joined):
        raise ClusterError(messages.CLUSTER_NETWORK_CONTRADICTORY(path=str(path)))
    if lost := sorted(set(data["sourced"].values()) - data["sources"].keys()):
        raise ClusterError(messages.CLUSTER_SOURCE_MISSING(path=str(path), name=lost[0]))


def _check_measured(cluster: Cluster, path: Path) -> None:
    for one in cluster.measured:
        fewest = -(-one.ranks // cluster.gpus_per_node)
        nodes = one.nodes or fewest
        if not fewest <= nodes <= one.ranks:
            raise ClusterError(messages.MEASURED_NODES_IMPOSSIBLE(path=str(path), ranks=one.ranks, nodes=nodes))
        if nodes > 1 and not cluster.network_gbps:
            raise ClusterError(messages.MEASURED_WITHOUT_NETWORK(path=str(path), nodes=nodes))
