"""Latency law of collectives: latency and bandwidth of the algorithms and protocols that NCCL chooses from.

Serving engines and PyTorch's symmetric memory have custom all-reduces for messages inside one node. One-shot: each rank
reads the whole buffers of all others. Two-shot: each rank reduces its shard, then all-gathers the reduced shards.

The time of an algorithm is the sum of three parts:

    |-- latency: launch + hops --|-- transfer: slower of links inside and network between nodes --|-- pipeline fill --|
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tracekit.arrays import Bools, Floats
from tracekit.comm import tuner
from tracekit.comm.collective_calls import CollectiveCalls, CollectiveLinks
from tracekit.comm.constants import PROTOCOLS, CollectiveConstants

AlgorithmNames = npt.NDArray[np.str_]

MIN_NVLS_RANKS = 5
"""NVLS appears in the measured all-reduces of 8 GPUs, but not in those of 4."""

NVLS_DTYPES = frozenset(
    ("half", "float16", "fp16", "bfloat16", "bf16", "float", "float32", "fp32", "double", "float64", "fp64")
)

BEST_CHUNKS_PIPELINE_WEIGHT = 2.0
"""Weight of the pipeline fill with chunks of the best size (Thakur, Rabenseifner and Gropp, 2005)."""

LAUNCH_GROWTH_MIN_BYTES = 1024
LAUNCH_GROWTH_DOUBLINGS = 3
"""From ``LAUNCH_GROWTH_MIN_BYTES`` per rank on, NCCL doubles the threads of a launch, then its blocks, at most so many
times."""


def predict_times(
    calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants, only: str | None = None
) -> tuple[Floats, AlgorithmNames]:
    """Return the time in us and the algorithm of each collective.

    Inside a node the algorithm is what NCCL's tuner chooses, between nodes the fastest.

    Args:
        calls: The collectives.
        links: Bandwidths of the links that they use.
        constants: Constants of the model.
        only: The only algorithm allowed, such as 'ring'; None for all.

    Returns:
        The times, and names such as 'ring/LL128'. One rank takes no time, by 'none'; what cannot run takes infinite
        time.
    """
    names = [name for name in _list_algorithms(calls) if only in (None, name.partition("/")[0])]
    time_us, algorithm = _choose_by_tuner(names, calls, links, constants)
    chosen = (calls.nodes <= 1) & (links.compute_capability_major > 0)
    if not chosen.all():
        fastest_us, fastest = _choose_fastest(names, calls, links, constants)
        # More nodes never make a collective faster: its time is at least that among the ranks of one node.
        floor_us = np.where((links.compute_capability_major > 0) & np.isfinite(time_us), time_us, 0.0)
        time_us = np.where(chosen, time_us, np.maximum(fastest_us, floor_us))
        algorithm = np.where(chosen, algorithm, fastest)
    for name, shot_us in _time_custom_allreduces(calls, links, constants):
        time_us, algorithm = np.minimum(time_us, shot_us), np.where(shot_us < time_us, name, algorithm)
    alone = calls.ranks <= 1
    return np.where(alone, 0.0, time_us), np.where(alone, "none", algorithm)


def _list_algorithms(calls: CollectiveCalls) -> list[str]:
    if calls.collective in ("all_to_all", "send_recv"):
        return ["direct/LL", "direct/Simple"]
    rings = [f"ring/{protocol}" for protocol in PROTOCOLS]
    if calls.collective != "all_reduce":
        return rings
    return [*rings, *(f"tree/{protocol}" for protocol in PROTOCOLS), "nvls/Simple", "nvls-tree/Simple"]


def _find_usable(name: str, calls: CollectiveCalls, links: CollectiveLinks) -> Bools:
    algorithm, _, protocol = name.partition("/")
    one = calls.nodes <= 1
    where = {"tree": ~one, "nvls": one, "nvls-tree": ~one}.get(algorithm, np.full(one.shape, True))
    if protocol == "LL128":
        where = where & ~links.is_pcie
    if algorithm.startswith("nvls"):
        where = (
            where & links.has_nvls & calls.has_nvls_dtype & ~links.is_pcie & (calls.ranks_per_node >= MIN_NVLS_RANKS)
        )
    return where


def _compute_time(name: str, calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants) -> Floats:
    algorithm, _, protocol = name.partition("/")
    if algorithm.startswith("nvls"):
        return _compute_nvls_time(calls, links, constants)
    return {"ring": compute_ring_time, "tree": _compute_tree_time, "direct": _compute_direct_time}[algorithm](
        calls, links, constants, protocol
    )


def _choose_fastest(
    names: list[str], calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants
) -> tuple[Floats, AlgorithmNames]:
    table = np.full((len(names) + 1, calls.ranks.size), np.inf)
    for row, name in zip(table, names, strict=False):
        row[:] = np.where(_find_usable(name, calls, links), _compute_time(name, calls, links, constants), np.inf)
    return table.min(axis=0), np.array([*names, "none"])[table.argmin(axis=0)]


def _choose_by_tuner(
    names: list[str], calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants
) -> tuple[Floats, AlgorithmNames]:
    """Compute the time of NCCL's choice among the ranks of one node.

    NCCL may switch to a slower protocol as messages grow. The time is therefore at least that of any smaller message
    under the protocol that NCCL takes for it.
    """
    one = replace(calls, ranks=calls.ranks_per_node, nodes=np.ones_like(calls.nodes))
    usable = {name: _find_usable(name, one, links) for name in names}
    inside = {name: where for name, where in usable.items() if where.any()}
    time_us, taken = np.full(calls.ranks.shape, -np.inf), np.full(calls.ranks.shape, "none", dtype="<U16")
    latest = np.full(calls.ranks.shape, -np.inf)
    for name, (start, end) in tuner.find_size_ranges(inside, one, links).items():
        begun = (start < end) & (start <= calls.size_bytes)
        upto = replace(one, size_bytes=np.clip(end, 0, calls.size_bytes))
        time_us = np.where(begun, np.maximum(time_us, _compute_time(name, upto, links, constants)), time_us)
        taken = np.where(begun & (start > latest), name, taken)
        latest = np.where(begun, np.maximum(latest, start), latest)
    known = np.where(np.isneginf(time_us), np.inf, time_us)
    return np.where(one.ranks > 1, known, 0.0), taken


def _time_custom_allreduces(
    calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants
) -> Iterator[tuple[str, Floats]]:
    """Yield name and time of each custom all-reduce that the job has."""
    if calls.collective != "all_reduce" or not np.any(calls.has_custom_allreduce):
        return
    # Over PCI Express vLLM, SGLang and TensorRT-LLM use custom all-reduces on two GPUs only.
    usable = calls.has_custom_allreduce & (calls.nodes <= 1) & ~(links.is_pcie & (calls.ranks > 2))
    reads = {"one-shot": calls.ranks - 1, "two-shot": 2 * (calls.ranks - 1) / np.maximum(calls.ranks, 1)}
    for name, count in reads.items():
        yield (
            name,
            np.where(
                usable, _compute_custom_allreduce_time(calls, links, constants, name.replace("-", "_"), count), np.inf
            ),
        )


def compute_ring_time(
    calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants, protocol: str
) -> Floats:
    """Compute the time in us of a ring that visits every GPU of a node before the next node.

    Steps as in NCCL's src/graph/tuning.cc: 2 (n - 1) for an all-reduce, else n - 1. Each round crosses to another node
    nodes - 1 times. All GPUs of a node carry the ring over the network together, so their bandwidths add up.

    Args:
        calls: The collectives.
        links: Bandwidths of the links that they use.
        constants: Constants of the model.
        protocol: One of ``PROTOCOLS``.
    """
    n, nodes, rounds = calls.ranks, calls.nodes, calls.rounds
    crossings = rounds * (nodes - 1)
    latency_us = _compute_latency(calls, links, constants, protocol, rounds * (n - 1) - crossings)
    latency_us += crossings * _compute_hop_latency(links, constants, protocol, constants.network.ring_us)
    moved = calls.size_bytes if calls.collective in ("broadcast", "reduce") else calls.size_bytes * (n - 1) / n
    inside_us = _compute_intra_node_transfer(
        calls, links, constants, protocol, rounds * moved, rounds * (calls.size_bytes - moved)
    )
    between_us = _compute_inter_node_transfer(calls, links, constants, protocol, rounds * moved / calls.ranks_per_node)
    return _add_pipeline_fill(
        calls, latency_us, np.maximum(inside_us, between_us), constants.protocols[protocol].pipeline
    )


def _compute_tree_time(
    calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants, protocol: str
) -> Floats:
    """Compute the time up and down a double binary tree of nodes, with a chain in each node (NCCL 2.4 and later).

    Half of the buffer goes up each tree. With two nodes, each sends and receives the buffer once; with more, the inner
    nodes send and receive it twice.
    """
    g, nodes = calls.ranks_per_node, calls.nodes
    hop_us = _compute_hop_latency(links, constants, protocol, constants.network.tree_us)
    latency_us = (
        _compute_latency(calls, links, constants, protocol, 2 * (g - 1)) + 2 * _count_tree_levels(nodes) * hop_us
    )
    moved = 2 * calls.size_bytes * constants.network.tree_cost
    inside_us = np.where(g > 1, _compute_intra_node_transfer(calls, links, constants, protocol, moved, 0.0), 0.0)
    between_us = _compute_inter_node_transfer(calls, links, constants, protocol, _compute_tree_bytes(calls))
    return _add_pipeline_fill(
        calls, latency_us, np.maximum(inside_us, between_us), constants.protocols[protocol].pipeline
    )


def _compute_nvls_time(calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants) -> Floats:
    """Compute the time of NVLS: the switch reduces and multicasts inside a node; a tree joins nodes (NVLSTree)."""
    protocol = constants.protocols["NVLS"]
    hop_us = _compute_hop_latency(links, constants, "Simple", constants.network.tree_us)
    latency_us = links.system.latency * protocol.base_us + 2 * _count_tree_levels(calls.nodes) * hop_us
    gbps = links.gbps * links.system.bandwidth * links.system.nvls
    inside_us = protocol.cost * calls.size_bytes / gbps / 1e3
    between_us = _compute_inter_node_transfer(calls, links, constants, "Simple", _compute_tree_bytes(calls))
    return _add_pipeline_fill(calls, latency_us, np.maximum(inside_us, between_us), protocol.pipeline)


def _compute_custom_allreduce_time(
    calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants, name: str, reads: Floats
) -> Floats:
    """Compute the time of a custom all-reduce whose ranks each read ``reads`` times the buffer from the others."""
    protocol = constants.protocols[name]
    latency_us = links.system.custom * (protocol.base_us + protocol.hop_us * (calls.ranks - 1))
    cost = protocol.cost * np.where(links.is_pcie, constants.pcie.cost, 1.0)
    read_us = cost * reads * calls.size_bytes / (links.gbps * links.system.bandwidth * 1e3)
    return _add_pipeline_fill(calls, latency_us, read_us, protocol.pipeline)


def _compute_direct_time(
    calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants, protocol: str
) -> Floats:
    """Compute the time of direct sends: all ranks to all at once (all-to-all), or one to one (send and receive).

    A rank's SMs copy what it sends and what it keeps. On fast links to few ranks this copy takes longest. Every message
    goes straight to its rank, so between nodes no chain of hops has to be filled.
    """
    n, nodes = calls.ranks, calls.nodes
    alone = calls.collective == "send_recv"
    steps = np.ones_like(n) if alone else np.log2(np.maximum(n, 1))
    crossed = nodes > 1
    levels = np.where(crossed, 1.0 if alone else _count_tree_levels(nodes), 0.0)
    hop_us = _compute_hop_latency(links, constants, protocol, constants.network.ring_us)
    name = f"direct_{protocol}"
    latency_us = _compute_latency(calls, links, constants, name, steps) + levels * hop_us
    moved = calls.size_bytes if alone else calls.size_bytes * (n - 1) / n
    sent = moved if alone else calls.size_bytes * (nodes - 1) / nodes
    linked_us = _compute_intra_node_transfer(calls, links, constants, name, moved, 0.0)
    copied_us = calls.size_bytes / (links.copy_gbps * 1e3)
    between_us = _compute_inter_node_transfer(calls, links, constants, protocol, sent)
    transfer_us = np.maximum((linked_us**4 + copied_us**4) ** (1 / 4), between_us)
    pipeline = constants.protocols[name].pipeline
    direct: Floats = latency_us + transfer_us + pipeline * np.sqrt(latency_us * transfer_us)
    return direct


def _add_pipeline_fill(calls: CollectiveCalls, latency_us: Floats, transfer_us: Floats, pipeline: float) -> Floats:
    """Add the time to fill the pipeline, caused by cutting the transfer into chunks, to latency and transfer.

    The fitted weight is that of links inside a node. Between nodes the weight is that of chunks of the best size, until
    the transfer takes as long as the latency: NCCL's buffers hold no larger chunks.
    """
    filling = pipeline * np.sqrt(latency_us * transfer_us)
    between = BEST_CHUNKS_PIPELINE_WEIGHT * np.sqrt(latency_us * np.minimum(transfer_us, latency_us))
    filled: Floats = latency_us + transfer_us + np.where(calls.nodes > 1, np.maximum(filling, between), filling)
    return filled


def _count_tree_levels(nodes: Floats) -> Floats:
    """Count the levels of a binary tree of nodes."""
    levels: Floats = np.ceil(np.log2(np.maximum(nodes, 1)))
    return levels


def _compute_tree_bytes(calls: CollectiveCalls) -> Floats:
    passes = np.where(calls.nodes > 2, 2.0, 1.0)
    tree: Floats = passes * calls.size_bytes / calls.ranks_per_node
    return tree


def _compute_hop_latency(
    links: CollectiveLinks, constants: CollectiveConstants, protocol: str, hops_us: Mapping[str, float]
) -> float:
    return hops_us[protocol] * constants.network.latency[links.network]


def _compute_latency(
    calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants, protocol: str, hops: Floats
) -> Floats:
    """Compute the latency of the launch and of the hops inside nodes; larger launches take longer."""
    price = constants.protocols[protocol]
    part = np.maximum(calls.size_bytes / calls.ranks_per_node, 1) / LAUNCH_GROWTH_MIN_BYTES
    scale = links.system.latency * np.where(links.is_pcie, constants.pcie.latency, 1.0)
    scale = scale * price.growth ** np.clip(np.log2(part), 0, LAUNCH_GROWTH_DOUBLINGS)
    latency: Floats = scale * (price.base_us + links.system.hop * price.hop_us * hops)
    return latency


def _compute_intra_node_transfer(
    calls: CollectiveCalls,
    links: CollectiveLinks,
    constants: CollectiveConstants,
    protocol: str,
    moved: Floats,
    own: Floats | float,
) -> Floats:
    """Compute the transfer time inside a node: bytes that a GPU sends over its links, and bytes it copies to itself.

    The copy stays in the GPU's memory, which is far faster than PCI Express, so there it is left out.
    """
    per_byte = _compute_relative_cost(links, constants, protocol) / (links.gbps * links.system.bandwidth * 1e3)
    copied = np.where(links.is_pcie, 0.0, constants.own.get(calls.collective, 0.0) * own)
    transfer: Floats = per_byte * (moved + copied)
    return transfer


def _compute_relative_cost(links: CollectiveLinks, constants: CollectiveConstants, protocol: str) -> Floats:
    """Compute the time per byte relative to the link's; LL's flags take half of PCI Express (src/graph/tuning.cc)."""
    flags = 2.0 if protocol.endswith("LL") else 1.0
    pcie = constants.pcie.cost * constants.protocols["Simple"].cost * flags
    cost: Floats = np.where(links.is_pcie, pcie, constants.protocols[protocol].cost)
    return cost


def _compute_inter_node_transfer(
    calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants, protocol: str, sent: Floats
) -> Floats:
    """Compute the transfer time of the bytes that each GPU sends over the network; 0 on one node."""
    rate = constants.network.efficiency[links.network] * constants.network.share[protocol] * links.network_gbps * 1e3
    return np.divide(sent, rate, out=np.zeros_like(sent), where=calls.nodes > 1)
