"""Description of a cluster: nodes, GPUs, the links between them and the network."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from predictors import Gpu, list_gpus, load_gpu
from predictors.errors import AmbiguousGpuError, UnknownGpuError
from predictors.given_files import read_toml
from predictors.gpu import PCIE_LANE_GBPS
from tracekit.bounds import MAX_CLUSTER_GPUS
from tracekit.comm.collective_calls import BUS_FACTOR, compute_bus_factor
from tracekit.comm.errors import ClusterError, UnknownClusterError
from tracekit.messages import layouts as messages

KEY_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "collective": str,
    "bytes": int,
    "ranks": int,
    "nodes": int,
    "dtype": str,
    "time_us": (int, float),
    "busbw_gbps": (int, float),
}

EXCLUSIVE_MINIMUM = {"ranks": 1}
"""Exclusive minimum of a number by key; ``MIN_NUMBER`` for all other keys."""
MIN_NUMBER, MAX_NUMBER = 1e-6, 1e15
"""Beyond what any network takes or carries, while quotients of two stay finite."""


@dataclass(frozen=True, slots=True)
class MeasuredCollective:
    """One collective as nccl-tests measures it.

    Attributes:
        collective: Name of the collective, a key of ``BUS_FACTOR``.
        bytes: Size of the whole buffer.
        ranks: Number of ranks.
        time_us: Measured time in us.
        nodes: Nodes that the ranks were spread over evenly; None if the ranks filled one node after the other.
        dtype: Element type of the buffer.
    """

    collective: str
    bytes: int
    ranks: int
    time_us: float
    nodes: int | None = None
    dtype: str = "float"


def parse_measured_entry(entry: Any, where: str) -> MeasuredCollective:
    """Parse one entry of a file's ``[[measured]]``.

    Args:
        entry: ``collective``, ``bytes``, ``ranks``, one of ``time_us`` and ``busbw_gbps`` (nccl-tests' bus bandwidth,
            1e9 bytes/s), and where they matter ``nodes`` and ``dtype``.
        where: The file, for error messages.

    Raises:
        ClusterError: A key is missing, unknown or wrong.
    """
    _check_entry(entry, where)
    collective, size, ranks = entry["collective"], entry["bytes"], entry["ranks"]
    if "time_us" in entry:
        time_us = float(entry["time_us"])
    else:
        time_us = size * compute_bus_factor(collective, float(ranks)) / entry["busbw_gbps"] / 1e3
    return MeasuredCollective(collective, size, ranks, time_us, entry.get("nodes"), entry.get("dtype", "float"))


def _check_entry(entry: Any, where: str) -> None:
    if not isinstance(entry, dict):
        raise ClusterError(messages.MEASURED_INCOMPLETE(path=where))
    for key, value in entry.items():
        if key not in KEY_TYPES:
            raise ClusterError(messages.MEASURED_KEY_UNKNOWN(path=where, key=key, known=list(KEY_TYPES)))
        is_typed = isinstance(value, KEY_TYPES[key]) and not isinstance(value, bool)
        is_number = isinstance(value, int | float)
        if not is_typed or (is_number and not EXCLUSIVE_MINIMUM.get(key, MIN_NUMBER) < value < MAX_NUMBER):
            raise ClusterError(messages.MEASURED_VALUE_INVALID(path=where, key=key, value=f"{value!r:.60}"))
    if {"collective", "bytes", "ranks"} - entry.keys() or ("time_us" in entry) == ("busbw_gbps" in entry):
        raise ClusterError(messages.MEASURED_INCOMPLETE(path=where))
    if entry["collective"] not in BUS_FACTOR:
        raise ClusterError(
            messages.MEASURED_COLLECTIVE_UNKNOWN(path=where, collective=entry["collective"], known=list(BUS_FACTOR))
        )


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

USABLE_MEMORY_FRACTION = 0.92
"""Usable fraction of a GPU's memory (a judgement).

The driver's context, NCCL's buffers and fragmentation take the rest.
"""
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
class GpuKind:
    """One kind of GPU of a cluster that has several.

    Attributes:
        cluster: All of the cluster's GPUs as if they were of this kind, on its nodes and the slowest of the networks.
        gpus: Number of GPUs of this kind.
    """

    cluster: "Cluster"
    gpus: int


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
        kinds: Of a cluster with several kinds of GPUs, each kind in the order of its ranks; everything else is that of
            the kind with the least memory. Empty where all GPUs are alike.
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
    kinds: tuple[GpuKind, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(kind.gpus for kind in self.kinds) or self.nodes * self.gpus_per_node

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
    if gpu.is_cpu:
        raise ClusterError(messages.CLUSTER_OF_CPUS(cluster=str(path), cpu=gpu.slug))
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


def load_cluster(name: str, *, unlike_gpus: bool = False) -> Cluster:
    """Return the cluster of that name.

    Args:
        name: ``8xh100-sxm`` (GPUs of one node), ``4x8xh100-sxm@ndr400`` (nodes, GPUs of each, and the network of each
            GPU in Gbit/s), a name that ``list_clusters`` returns, a path that ends in '.toml', or a number of nodes of
            one of the last two: ``16xp5``, ``16x./lab.toml``. Several of these joined by ``+`` are nodes of several
            kinds of GPUs.
        unlike_gpus: Whether it may have several kinds of GPUs.

    Raises:
        ClusterError: No cluster has that name, the description is wrong, or it has several kinds of GPUs and mustn't.

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
    if len(parts := _split_kinds(text)) > 1:
        if not unlike_gpus:
            raise ClusterError(messages.CLUSTER_OF_UNLIKE_GPUS(name=name))
        return _check_size(_join_kinds(name, parts), name)
    written = _CLUSTER_PATTERN.fullmatch(text)
    if not written:
        raise UnknownClusterError.from_name(name, load_aliases())
    return _check_size(_assemble_cluster(name, written), name)


def _split_kinds(text: str) -> list[str]:
    """Split a name at each ``+`` between nodes; one in a GPU's name, as of Ryzen AI Max+ 395, is part of it."""
    parts = [part.strip() for part in text.split("+")]
    known = all(_CLUSTER_PATTERN.fullmatch(part) or not _is_written(part) for part in parts)
    return parts if known else [text]


def _join_kinds(name: str, parts: Sequence[str]) -> Cluster:
    """Join nodes of several kinds of GPUs; the network of the last part is that of all without one of their own."""
    _, _, network = parts[-1].partition("@")
    whole = [f"{part}@{network}" if network and "@" not in part and _is_written(part) else part for part in parts]
    nodes = [load_cluster(part) for part in whole]
    if lacking := [part for part, one in zip(parts, nodes, strict=True) if one.network == "none"]:
        raise ClusterError(messages.UNLIKE_GPUS_WITHOUT_NETWORK(name=name, part=lacking[0]))
    slowest = min(nodes, key=lambda one: one.network_gbps)
    gpus = sum(one.gpus for one in nodes)
    slug = "+".join([*(one.slug.removesuffix(f"@{network.lower()}") for one in nodes[:-1]), nodes[-1].slug])
    shown = " + ".join(one.name for one in nodes)
    kinds = tuple(GpuKind(_extend_nodes(one, slowest, gpus, slug, shown), one.gpus) for one in nodes)
    least = min(kinds, key=lambda kind: kind.cluster.gpu.memory_bytes)
    return replace(least.cluster, kinds=kinds)


def _is_written(part: str) -> bool:
    """Return whether a part of a name describes GPUs, in place of naming a known node."""
    several = _NODE_COUNT_PATTERN.fullmatch(part)
    return not (_find_cluster_file(part) or (several and _find_cluster_file(several["stem"])))


def _extend_nodes(one: Cluster, slowest: Cluster, gpus: int, slug: str, name: str) -> Cluster:
    """Return a cluster of at least so many GPUs with the nodes of one and the network of another."""
    nodes = -(-gpus // one.gpus_per_node)
    extended = replace(one, slug=slug, name=name, nodes=nodes, rented_gpus=1)
    if one.network_gbps == slowest.network_gbps:
        return extended
    return replace(
        extended,
        network=slowest.network,
        nics_per_node=one.gpus_per_node,
        nic_gbit=8 * slowest.network_gbps,
        oversubscription=1.0,
        measured=(),
    )


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
        gpu = load_gpu(slug)
    except AmbiguousGpuError as error:
        raise ClusterError(messages.CLUSTER_GPU_AMBIGUOUS(name=name, reason=str(error))) from None
    except UnknownGpuError:
        written = name[: name.lower().index(slug.lower())]
        known = [*load_aliases(), *(f"{written}{gpu}" for gpu in list_gpus())]
        raise UnknownClusterError.from_name(name, known) from None
    if gpu.is_cpu:
        raise ClusterError(messages.CLUSTER_OF_CPUS(cluster=name, cpu=gpu.slug))
    return gpu


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
