"""How long a collective takes: latency and bandwidth of the algorithms and protocols that NCCL chooses from.

Serving engines and PyTorch's symmetric memory bring all-reduces of their own for messages of one node: every rank reads
what all others have (one-shot), or adds up its part and reads the others' sums (two-shot).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tracekit.comm.constants import PROTOCOLS, Constants, System

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Number = TypeVar("Number", float, Array)

BUS_FACTOR = {
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "all_to_all": 1.0,
    "broadcast": 0.0,
    "reduce": 0.0,
    "send_recv": 0.0,
}
"""Of collectives of which a rank's part of the buffer stays where it is; 0 where all of it moves."""

NVLS_LEAST_RANKS = 5
"""NVLS shows in the measured all-reduces of 8 GPUs, and doesn't in those of 4."""

NVLS_DTYPES = frozenset({"half", "float16", "fp16", "bfloat16", "bf16", "float", "float32", "fp32", "double"})


def bus_factor(collective: str, ranks: Number) -> Number:
    """Bytes over each link, over those of the buffer (nccl-tests, doc/PERFORMANCE.md).

    Args:
        collective: Which.
        ranks: That take part.
    """
    factor = BUS_FACTOR.get(collective, 0.0)
    return factor * (ranks - 1) / ranks if factor else ranks / ranks


@dataclass(frozen=True, slots=True)
class Links:
    """What carries a collective, a number per row or one for all.

    Attributes:
        gbps: Of a GPU's links into its node, in one direction, by the datasheet, in 1e9 bytes/s.
        network_gbps: Of a GPU's share of its node's network, at line rate, in 1e9 bytes/s.
        network: Kind of the network.
        pcie: Whether the GPUs talk over PCI Express.
        nvls: Whether the switch can reduce and multicast.
        system: Scales of the machine.
    """

    gbps: Array
    network_gbps: float
    network: str
    pcie: Mask
    nvls: bool
    system: System


@dataclass(frozen=True, slots=True)
class Calls:
    """Collectives of one kind, an element per row.

    Attributes:
        collective: Which, a key of ``BUS_FACTOR``.
        size_bytes: Of the whole buffer, as nccl-tests counts it.
        ranks: That take part.
        nodes: That they sit on, evenly.
        adds: Whether NVLS can add the dtype.
        custom: Whether the job has all-reduces of its own, which it takes where they are faster than NCCL's.
    """

    collective: str
    size_bytes: Array
    ranks: Array
    nodes: Array
    adds: Mask
    custom: Mask | bool = False

    @property
    def ranks_per_node(self) -> Array:
        """Ranks on each node."""
        return self.ranks / self.nodes


def times(
    calls: Calls, links: Links, constants: Constants, only: str | None = None
) -> tuple[Array, npt.NDArray[np.str_]]:
    """Microseconds and algorithm of each collective: the fastest of those that NCCL could choose.

    Args:
        calls: The collectives.
        links: What carries them.
        constants: Of the model.
        only: The one algorithm that may be chosen, such as 'ring'; None for all.

    Returns:
        The times, and names such as 'ring/LL128'. One rank takes no time, by 'none'; what can't run, infinity.
    """
    candidates = _candidates(calls, links, constants)
    allowed = [(name, time_us) for name, time_us in candidates if only in (None, name.partition("/")[0])]
    names, columns = zip(*allowed or [("none", np.full(calls.ranks.shape, np.inf))], strict=True)
    table = np.stack(columns)
    best = table.argmin(axis=0)
    alone = calls.ranks <= 1
    return np.where(alone, 0.0, table.min(axis=0)), np.where(alone, "none", np.array(names)[best])


def _candidates(calls: Calls, links: Links, constants: Constants) -> Iterator[tuple[str, Array]]:
    direct = calls.collective in ("all_to_all", "send_recv")
    for name in PROTOCOLS:
        usable = ~links.pcie if name == "LL128" else np.full(calls.ranks.shape, True)
        time_us = _direct(calls, links, constants, name) if direct else ring(calls, links, constants, name)
        yield f"{'direct' if direct else 'ring'}/{name}", np.where(usable, time_us, np.inf)
        if calls.collective == "all_reduce":
            tree = np.where(usable & (calls.nodes > 1), _tree(calls, links, constants, name), np.inf)
            yield f"tree/{name}", tree
    if calls.collective == "all_reduce" and links.nvls:
        usable = calls.adds & ~links.pcie & (calls.ranks_per_node >= NVLS_LEAST_RANKS)
        one = calls.nodes <= 1
        time_us = _nvls(calls, links, constants)
        yield "nvls/Simple", np.where(usable & one, time_us, np.inf)
        yield "nvls-tree/Simple", np.where(usable & ~one, time_us, np.inf)
    if calls.collective == "all_reduce" and np.any(calls.custom):
        # Over PCI Express vLLM, SGLang and TensorRT-LLM use theirs on two GPUs only.
        usable = calls.custom & (calls.nodes <= 1) & ~(links.pcie & (calls.ranks > 2))
        yield "one-shot", np.where(usable, _shot(calls, links, constants, "one_shot", calls.ranks - 1), np.inf)
        halves = 2 * (calls.ranks - 1) / np.maximum(calls.ranks, 1)
        yield "two-shot", np.where(usable, _shot(calls, links, constants, "two_shot", halves), np.inf)


def ring(calls: Calls, links: Links, constants: Constants, protocol: str) -> Array:
    """Microseconds around a ring that visits every GPU of a node before the next node.

    Steps as in NCCL's src/graph/tuning.cc: 2 (n - 1) for an all-reduce, else n - 1; one in each round crosses a node
    for each node but the first. The nodes' networks carry the ring together, so their GPUs' shares add up.

    Args:
        calls: The collectives.
        links: What carries them.
        constants: Of the model.
        protocol: One of ``PROTOCOLS``.
    """
    n, nodes = calls.ranks, calls.nodes
    rounds = 2.0 if calls.collective == "all_reduce" else 1.0
    crossings = rounds * (nodes - 1)
    latency_us = _latency(calls, links, constants, protocol, rounds * (n - 1) - crossings)
    latency_us += crossings * _hop(links, constants, protocol, constants.network.ring_us)
    moved = calls.size_bytes if calls.collective in ("broadcast", "reduce") else calls.size_bytes * (n - 1) / n
    own = 0.0 if calls.collective in ("broadcast", "reduce") else calls.size_bytes / n
    inside_us = _inside(calls, links, constants, protocol, rounds * moved, rounds * own)
    between_us = _between(calls, links, constants, protocol, rounds * moved / calls.ranks_per_node)
    return _piped(latency_us, np.maximum(inside_us, between_us), constants.protocols[protocol].pipeline)


def _tree(calls: Calls, links: Links, constants: Constants, protocol: str) -> Array:
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
    return _piped(latency_us, np.maximum(inside_us, between_us), constants.protocols[protocol].pipeline)


def _nvls(calls: Calls, links: Links, constants: Constants) -> Array:
    """The switch adds and multicasts inside a node; a tree joins nodes (NVLSTree)."""
    protocol = constants.protocols["NVLS"]
    hop_us = _hop(links, constants, "Simple", constants.network.tree_us)
    latency_us = links.system.latency * protocol.base_us + 2 * _levels(calls.nodes) * hop_us
    gbps = links.gbps * links.system.bandwidth * links.system.nvls
    inside_us = protocol.cost * calls.size_bytes / gbps / 1e3
    between_us = _between(calls, links, constants, "Simple", _tree_bytes(calls))
    return _piped(latency_us, np.maximum(inside_us, between_us), protocol.pipeline)


def _shot(calls: Calls, links: Links, constants: Constants, name: str, reads: Array) -> Array:
    """Every rank reads ``reads`` times the buffer from the others' memory."""
    protocol = constants.protocols[name]
    latency_us = links.system.custom * (protocol.base_us + protocol.hop_us * (calls.ranks - 1))
    cost = protocol.cost * np.where(links.pcie, constants.pcie.cost, 1.0)
    read_us = cost * reads * calls.size_bytes / (links.gbps * links.system.bandwidth * 1e3)
    return _piped(latency_us, read_us, protocol.pipeline)


def _direct(calls: Calls, links: Links, constants: Constants, protocol: str) -> Array:
    """Every rank to every other at once (all-to-all), or one to one (send and receive)."""
    n, nodes = calls.ranks, calls.nodes
    alone = calls.collective == "send_recv"
    steps = np.ones_like(n) if alone else np.log2(np.maximum(n, 1))
    crossed = nodes > 1
    levels = np.where(crossed, 1.0 if alone else _levels(nodes), 0.0)
    hop_us = _hop(links, constants, protocol, constants.network.ring_us)
    latency_us = _latency(calls, links, constants, protocol, steps) + levels * hop_us
    moved = calls.size_bytes if alone else calls.size_bytes * (n - 1) / n
    own = np.zeros_like(n) if alone else calls.size_bytes / n
    sent = moved if alone else calls.size_bytes * (nodes - 1) / nodes
    inside_us = _inside(calls, links, constants, protocol, moved, own)
    between_us = _between(calls, links, constants, protocol, sent)
    return _piped(latency_us, np.maximum(inside_us, between_us), constants.protocols[protocol].pipeline)


def _piped(latency_us: Array, transfer_us: Array, pipeline: float) -> Array:
    """Latency, transfer, and the cost of cutting the transfer into chunks that fill the pipeline."""
    filled: Array = latency_us + transfer_us + pipeline * np.sqrt(latency_us * transfer_us)
    return filled


def _levels(nodes: Array) -> Array:
    """Levels of a binary tree of nodes."""
    levels: Array = np.ceil(np.log2(np.maximum(nodes, 1)))
    return levels


def _tree_bytes(calls: Calls) -> Array:
    passes = np.where(calls.nodes > 2, 2.0, 1.0)
    tree: Array = passes * calls.size_bytes / calls.ranks_per_node
    return tree


def _hop(links: Links, constants: Constants, protocol: str, hops_us: Mapping[str, float]) -> float:
    return hops_us[protocol] * constants.network.latency[links.network]


def _latency(calls: Calls, links: Links, constants: Constants, protocol: str, hops: Array) -> Array:
    """Of the launch and of the hops inside nodes."""
    price, operation = constants.protocols[protocol], constants.operations[calls.collective]
    scale = links.system.latency * np.where(links.pcie, constants.pcie.latency, 1.0)
    latency: Array = scale * (price.base_us * operation.base + price.hop_us * operation.hop * hops)
    return latency


def _inside(calls: Calls, links: Links, constants: Constants, protocol: str, moved: Array, own: Array | float) -> Array:
    """Of the bytes that each GPU sends over its links into the node, and of those it copies to itself.

    The copy stays in the GPU's memory, which is far faster than PCI Express.
    """
    operation = constants.operations[calls.collective]
    per_byte = _cost(links, constants, protocol) * operation.cost / (links.gbps * links.system.bandwidth * 1e3)
    copied = np.where(links.pcie, 0.0, operation.own * own)
    transfer: Array = per_byte * (moved + copied)
    return transfer


def _cost(links: Links, constants: Constants, protocol: str) -> Array:
    """Time per byte over the link's; LL's flags take half of PCI Express (NCCL's src/graph/tuning.cc)."""
    flags = 2.0 if protocol == "LL" else 1.0
    pcie = constants.pcie.cost * constants.protocols["Simple"].cost * flags
    cost: Array = np.where(links.pcie, pcie, constants.protocols[protocol].cost)
    return cost


def _between(calls: Calls, links: Links, constants: Constants, protocol: str, sent: Array) -> Array:
    """Of the bytes that each GPU's share of the network carries, if there is more than one node."""
    if not links.network_gbps:
        return np.zeros_like(sent)
    rate = constants.network.efficiency[links.network] * constants.network.share[protocol]
    transfer: Array = np.where(calls.nodes > 1, sent / (rate * links.network_gbps * 1e3), 0.0)
    return transfer
