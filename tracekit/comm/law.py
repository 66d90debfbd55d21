"""How long a collective takes: latency and bandwidth of the algorithms and protocols that NCCL chooses from.

Serving engines and PyTorch's symmetric memory bring all-reduces of their own for messages of one node: every rank reads
what all others have (one-shot), or adds up its part and reads the others' sums (two-shot).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tracekit.arrays import Bools, Floats
from tracekit.comm import tuner
from tracekit.comm.calls import Calls, Links
from tracekit.comm.constants import PROTOCOLS, Constants

Names = npt.NDArray[np.str_]

NVLS_LEAST_RANKS = 5
"""NVLS shows in the measured all-reduces of 8 GPUs, and doesn't in those of 4."""

NVLS_DTYPES = frozenset(
    ("half", "float16", "fp16", "bfloat16", "bf16", "float", "float32", "fp32", "double", "float64", "fp64")
)

BEST_CHUNKS = 2.0
"""Weight of filling the pipeline with chunks of the best size (Thakur, Rabenseifner and Gropp, 2005)."""

GROWS_FROM_BYTES = 1024
GROWS_DOUBLINGS = 3
"""From this part of a rank on, and so often, NCCL doubles the threads of a launch, then its blocks."""


def times(calls: Calls, links: Links, constants: Constants, only: str | None = None) -> tuple[Floats, Names]:
    """Microseconds and algorithm of each collective: inside a node what NCCL chooses, between nodes the fastest.

    Args:
        calls: The collectives.
        links: What carries them.
        constants: Of the model.
        only: The one algorithm that may be chosen, such as 'ring'; None for all.

    Returns:
        The times, and names such as 'ring/LL128'. One rank takes no time, by 'none'; what can't run, infinity.
    """
    names = [name for name in _names(calls) if only in (None, name.partition("/")[0])]
    time_us, algorithm = _chosen(names, calls, links, constants)
    chosen = (calls.nodes <= 1) & (links.capability > 0)
    if not chosen.all():
        fastest_us, fastest = _fastest(names, calls, links, constants)
        # No collective gains by more nodes: it takes at least as long as among the ranks of one.
        floor_us = np.where((links.capability > 0) & np.isfinite(time_us), time_us, 0.0)
        time_us = np.where(chosen, time_us, np.maximum(fastest_us, floor_us))
        algorithm = np.where(chosen, algorithm, fastest)
    for name, shot_us in _shots(calls, links, constants):
        time_us, algorithm = np.minimum(time_us, shot_us), np.where(shot_us < time_us, name, algorithm)
    alone = calls.ranks <= 1
    return np.where(alone, 0.0, time_us), np.where(alone, "none", algorithm)


def _names(calls: Calls) -> list[str]:
    if calls.collective in ("all_to_all", "send_recv"):
        return ["direct/LL", "direct/Simple"]
    rings = [f"ring/{protocol}" for protocol in PROTOCOLS]
    if calls.collective != "all_reduce":
        return rings
    return [*rings, *(f"tree/{protocol}" for protocol in PROTOCOLS), "nvls/Simple", "nvls-tree/Simple"]


def _usable(name: str, calls: Calls, links: Links) -> Bools:
    algorithm, _, protocol = name.partition("/")
    one = calls.nodes <= 1
    where = {"tree": ~one, "nvls": one, "nvls-tree": ~one}.get(algorithm, np.full(one.shape, True))
    if protocol == "LL128":
        where = where & ~links.pcie
    if algorithm.startswith("nvls"):
        where = where & links.nvls & calls.adds & ~links.pcie & (calls.ranks_per_node >= NVLS_LEAST_RANKS)
    return where


def _time(name: str, calls: Calls, links: Links, constants: Constants) -> Floats:
    algorithm, _, protocol = name.partition("/")
    if algorithm.startswith("nvls"):
        return _nvls(calls, links, constants)
    return {"ring": ring, "tree": _tree, "direct": _direct}[algorithm](calls, links, constants, protocol)


def _fastest(names: list[str], calls: Calls, links: Links, constants: Constants) -> tuple[Floats, Names]:
    table = np.full((len(names) + 1, calls.ranks.size), np.inf)
    for row, name in zip(table, names, strict=False):
        row[:] = np.where(_usable(name, calls, links), _time(name, calls, links, constants), np.inf)
    return table.min(axis=0), np.array([*names, "none"])[table.argmin(axis=0)]


def _chosen(names: list[str], calls: Calls, links: Links, constants: Constants) -> tuple[Floats, Names]:
    """By NCCL's choice, of the ranks of one node. No message takes less than a smaller one by another protocol."""
    one = replace(calls, ranks=calls.ranks_per_node, nodes=np.ones_like(calls.nodes))
    usable = {name: _usable(name, one, links) for name in names}
    inside = {name: where for name, where in usable.items() if where.any()}
    time_us, taken = np.full(calls.ranks.shape, -np.inf), np.full(calls.ranks.shape, "none", dtype="<U16")
    latest = np.full(calls.ranks.shape, -np.inf)
    for name, (start, end) in tuner.ranges(inside, one, links).items():
        begun = (start < end) & (start <= calls.size_bytes)
        upto = replace(one, size_bytes=np.clip(end, 0, calls.size_bytes))
        time_us = np.where(begun, np.maximum(time_us, _time(name, upto, links, constants)), time_us)
        taken = np.where(begun & (start > latest), name, taken)
        latest = np.where(begun, np.maximum(latest, start), latest)
    known = np.where(np.isneginf(time_us), np.inf, time_us)
    return np.where(one.ranks > 1, known, 0.0), taken


def _shots(calls: Calls, links: Links, constants: Constants) -> Iterator[tuple[str, Floats]]:
    """All-reduces that the job brings along."""
    if calls.collective != "all_reduce" or not np.any(calls.custom):
        return
    # Over PCI Express vLLM, SGLang and TensorRT-LLM use theirs on two GPUs only.
    usable = calls.custom & (calls.nodes <= 1) & ~(links.pcie & (calls.ranks > 2))
    reads = {"one-shot": calls.ranks - 1, "two-shot": 2 * (calls.ranks - 1) / np.maximum(calls.ranks, 1)}
    for name, count in reads.items():
        yield name, np.where(usable, _shot(calls, links, constants, name.replace("-", "_"), count), np.inf)


def ring(calls: Calls, links: Links, constants: Constants, protocol: str) -> Floats:
    """Microseconds around a ring that visits every GPU of a node before the next node.

    Steps as in NCCL's src/graph/tuning.cc: 2 (n - 1) for an all-reduce, else n - 1; one in each round crosses a node
    for each node but the first. The nodes' networks carry the ring together, so their GPUs' shares add up.

    Args:
        calls: The collectives.
        links: What carries them.
        constants: Of the model.
        protocol: One of ``PROTOCOLS``.
    """
    n, nodes, rounds = calls.ranks, calls.nodes, calls.rounds
    crossings = rounds * (nodes - 1)
    latency_us = _latency(calls, links, constants, protocol, rounds * (n - 1) - crossings)
    latency_us += crossings * _hop(links, constants, protocol, constants.network.ring_us)
    moved = calls.size_bytes if calls.collective in ("broadcast", "reduce") else calls.size_bytes * (n - 1) / n
    inside_us = _inside(calls, links, constants, protocol, rounds * moved, rounds * (calls.size_bytes - moved))
    between_us = _between(calls, links, constants, protocol, rounds * moved / calls.ranks_per_node)
    return _piped(calls, latency_us, np.maximum(inside_us, between_us), constants.protocols[protocol].pipeline)


def _tree(calls: Calls, links: Links, constants: Constants, protocol: str) -> Floats:
    """Up and down a double binary tree of nodes, with a chain inside each: NCCL 2.4 and later.

    Half of the buffer goes up each tree. Of two nodes each sends and receives the buffer once; of more, the inner
    nodes send and receive it twice.
    """
    g, nodes = calls.ranks_per_node, calls.nodes
    hop_us = _hop(links, constants, protocol, constants.network.tree_us)
    latency_us = _latency(calls, links, constants, protocol, 2 * (g - 1)) + 2 * _levels(nodes) * hop_us
    moved = 2 * calls.size_bytes * constants.network.tree_cost
    inside_us = np.where(g > 1, _inside(calls, links, constants, protocol, moved, 0.0), 0.0)
    between_us = _between(calls, links, constants, protocol, _tree_bytes(calls))
    return _piped(calls, latency_us, np.maximum(inside_us, between_us), constants.protocols[protocol].pipeline)


def _nvls(calls: Calls, links: Links, constants: Constants) -> Floats:
    """The switch adds and multicasts inside a node; a tree joins nodes (NVLSTree)."""
    protocol = constants.protocols["NVLS"]
    hop_us = _hop(links, constants, "Simple", constants.network.tree_us)
    latency_us = links.system.latency * protocol.base_us + 2 * _levels(calls.nodes) * hop_us
    gbps = links.gbps * links.system.bandwidth * links.system.nvls
    inside_us = protocol.cost * calls.size_bytes / gbps / 1e3
    between_us = _between(calls, links, constants, "Simple", _tree_bytes(calls))
    return _piped(calls, latency_us, np.maximum(inside_us, between_us), protocol.pipeline)


def _shot(calls: Calls, links: Links, constants: Constants, name: str, reads: Floats) -> Floats:
    """Every rank reads ``reads`` times the buffer from the others' memory."""
    protocol = constants.protocols[name]
    latency_us = links.system.custom * (protocol.base_us + protocol.hop_us * (calls.ranks - 1))
    cost = protocol.cost * np.where(links.pcie, constants.pcie.cost, 1.0)
    read_us = cost * reads * calls.size_bytes / (links.gbps * links.system.bandwidth * 1e3)
    return _piped(calls, latency_us, read_us, protocol.pipeline)


def _direct(calls: Calls, links: Links, constants: Constants, protocol: str) -> Floats:
    """Every rank to every other at once (all-to-all), or one to one (send and receive).

    What a rank sends, and what it keeps, its SMs copy; on fast links to few ranks that takes longest.
    """
    n, nodes = calls.ranks, calls.nodes
    alone = calls.collective == "send_recv"
    steps = np.ones_like(n) if alone else np.log2(np.maximum(n, 1))
    crossed = nodes > 1
    levels = np.where(crossed, 1.0 if alone else _levels(nodes), 0.0)
    hop_us = _hop(links, constants, protocol, constants.network.ring_us)
    name = f"direct_{protocol}"
    latency_us = _latency(calls, links, constants, name, steps) + levels * hop_us
    moved = calls.size_bytes if alone else calls.size_bytes * (n - 1) / n
    sent = moved if alone else calls.size_bytes * (nodes - 1) / nodes
    linked_us = _inside(calls, links, constants, name, moved, 0.0)
    copied_us = calls.size_bytes / (links.copies_gbps * 1e3)
    between_us = _between(calls, links, constants, protocol, sent)
    transfer_us = np.maximum((linked_us**4 + copied_us**4) ** (1 / 4), between_us)
    return _piped(calls, latency_us, transfer_us, constants.protocols[name].pipeline)


def _piped(calls: Calls, latency_us: Floats, transfer_us: Floats, pipeline: float) -> Floats:
    """Latency, transfer, and the cost of cutting the transfer into chunks that fill the pipeline.

    The fitted weight is that of links inside a node. The network's chunks cost what those of the best size do, until
    the transfer takes as long as the latency: NCCL's buffers hold no larger ones.
    """
    filling = pipeline * np.sqrt(latency_us * transfer_us)
    between = BEST_CHUNKS * np.sqrt(latency_us * np.minimum(transfer_us, latency_us))
    filled: Floats = latency_us + transfer_us + np.where(calls.nodes > 1, np.maximum(filling, between), filling)
    return filled


def _levels(nodes: Floats) -> Floats:
    """Levels of a binary tree of nodes."""
    levels: Floats = np.ceil(np.log2(np.maximum(nodes, 1)))
    return levels


def _tree_bytes(calls: Calls) -> Floats:
    passes = np.where(calls.nodes > 2, 2.0, 1.0)
    tree: Floats = passes * calls.size_bytes / calls.ranks_per_node
    return tree


def _hop(links: Links, constants: Constants, protocol: str, hops_us: Mapping[str, float]) -> float:
    return hops_us[protocol] * constants.network.latency[links.network]


def _latency(calls: Calls, links: Links, constants: Constants, protocol: str, hops: Floats) -> Floats:
    """Of the launch and of the hops inside nodes; of larger launches more."""
    price = constants.protocols[protocol]
    part = np.maximum(calls.size_bytes / calls.ranks_per_node, 1) / GROWS_FROM_BYTES
    scale = links.system.latency * np.where(links.pcie, constants.pcie.latency, 1.0)
    scale = scale * price.growth ** np.clip(np.log2(part), 0, GROWS_DOUBLINGS)
    latency: Floats = scale * (price.base_us + links.system.hop * price.hop_us * hops)
    return latency


def _inside(
    calls: Calls, links: Links, constants: Constants, protocol: str, moved: Floats, own: Floats | float
) -> Floats:
    """Of the bytes that each GPU sends over its links into the node, and of those it copies to itself.

    The copy stays in the GPU's memory, which is far faster than PCI Express.
    """
    per_byte = _cost(links, constants, protocol) / (links.gbps * links.system.bandwidth * 1e3)
    copied = np.where(links.pcie, 0.0, constants.own.get(calls.collective, 0.0) * own)
    transfer: Floats = per_byte * (moved + copied)
    return transfer


def _cost(links: Links, constants: Constants, protocol: str) -> Floats:
    """Time per byte over the link's; LL's flags take half of PCI Express (NCCL's src/graph/tuning.cc)."""
    flags = 2.0 if protocol.endswith("LL") else 1.0
    pcie = constants.pcie.cost * constants.protocols["Simple"].cost * flags
    cost: Floats = np.where(links.pcie, pcie, constants.protocols[protocol].cost)
    return cost


def _between(calls: Calls, links: Links, constants: Constants, protocol: str, sent: Floats) -> Floats:
    """Of the bytes that each GPU's share of the network carries, if there is more than one node."""
    rate = constants.network.efficiency[links.network] * constants.network.share[protocol] * links.network_gbps * 1e3
    return np.divide(sent, rate, out=np.zeros_like(sent), where=calls.nodes > 1)
