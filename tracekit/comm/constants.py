"""The constants of the collective model, as fitted and as published."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

PROTOCOLS = ("LL", "LL128", "Simple")
FILE = Path(__file__).with_name("constants.toml")


@dataclass(frozen=True, slots=True)
class Protocol:
    """What one of NCCL's protocols costs inside a node (Ring) or through a switch that adds (NVLS), or a custom kernel.

    Attributes:
        base_us: To launch the collective and to end it.
        hop_us: From one GPU to the next.
        cost: Time per byte over that of the datasheet's link, in one direction.
        pipeline: Weight of the cost of filling the pipeline, ``sqrt(latency x transfer)``; 2 for chunks of the
            best size (Thakur, Rabenseifner and Gropp, Optimization of Collective Communication in MPICH, 2005).
        growth: Factor on the latency for each doubling of a launch.
    """

    base_us: float
    hop_us: float
    cost: float
    pipeline: float
    growth: float = 1.0


@dataclass(frozen=True, slots=True)
class System:
    """How much one kind of machine departs from the mean of all; shrunken towards 1.

    Attributes:
        latency: Factor on every latency inside a node.
        hop: Factor, besides, on those of hops.
        bandwidth: Factor on the link's bandwidth.
        capabilities: Compute capabilities of the GPUs that it stands for.
        nvls: Part of an NVLS all-reduce's bandwidth that the generation gives, over Hopper's.
        custom: Factor on the latency of all-reduces that aren't NCCL's.
    """

    latency: float = 1.0
    hop: float = 1.0
    bandwidth: float = 1.0
    capabilities: tuple[str, ...] = ()
    nvls: float = 1.0
    custom: float = 1.0


@dataclass(frozen=True, slots=True)
class Pcie:
    """How PCI Express differs from NVLink.

    Attributes:
        latency: Factor on every latency.
        cost: Factor on the time per byte.
        beyond_two: Bandwidth left where more than two GPUs share the host bridges.
        staged: Bandwidth left where GPUs don't reach each other's memory, so that all goes through the host's.
    """

    latency: float
    cost: float
    beyond_two: float
    staged: float


@dataclass(frozen=True, slots=True)
class Network:
    """What the network between nodes gives.

    Attributes:
        efficiency: Part of the line rate that is left for data, by kind of network.
        latency: Factor on ``ring_us`` and ``tree_us``, by kind of network.
        ring_us: From one node to the next, by protocol.
        tree_us: From a node to its parent in the tree, by protocol.
        tree_cost: Time per byte of a tree inside a node, over that of a ring.
        share: Part of the line rate that a protocol's flags leave.
    """

    efficiency: Mapping[str, float]
    latency: Mapping[str, float]
    ring_us: Mapping[str, float]
    tree_us: Mapping[str, float]
    tree_cost: float
    share: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Constants:
    """All constants of the model.

    Attributes:
        protocols: Of the ring, by protocol, of 'direct_LL' and 'direct_Simple', which send to every rank at once, of
            'NVLS', and of 'one_shot' and 'two_shot'.
        own: By collective in a ring: time per byte that a rank copies to itself, over that of a byte sent; at most 1.
        bytes_per_clock: That each SM of a GPU copies.
        systems: By name of the machine measured.
        pcie: Where GPUs talk over PCI Express.
        rccl: Scales of AMD's GPUs.
        network: Between nodes.
        interval: Half width of the 90 % interval as a factor, by how much is known.
    """

    protocols: Mapping[str, Protocol]
    own: Mapping[str, float]
    bytes_per_clock: float
    systems: Mapping[str, System]
    pcie: Pcie
    rccl: System
    network: Network
    interval: Mapping[str, float]

    def system(self, vendor: str, capability: str) -> tuple[str | None, System]:
        """The measured machine that stands for a GPU, and its scales; None where there is no such machine.

        Args:
            vendor: 'nvidia' or 'amd'.
            capability: The GPU's compute capability.
        """
        if vendor == "amd":
            return None, self.rccl
        for name, system in self.systems.items():
            if capability in system.capabilities:
                return name, system
        return None, System()


@cache
def load_constants() -> Constants:
    """The shipped constants."""
    return from_tables(tomllib.loads(FILE.read_text(encoding="utf-8")))


def from_tables(tables: Mapping[str, Any]) -> Constants:
    """Constants from parsed TOML.

    Args:
        tables: The file's tables; [fit], which says how they came about, is not needed.
    """
    systems = {name: System(**_tupled(entry)) for name, entry in tables["systems"].items()}
    return Constants(
        protocols={name: Protocol(**entry) for name, entry in tables["protocols"].items()},
        own=_numbers(tables["own"]),
        bytes_per_clock=tables["copies"]["bytes_per_clock"],
        systems=systems,
        pcie=Pcie(**_known(Pcie, tables["pcie"])),
        rccl=System(**_known(System, tables["rccl"])),
        network=Network(**_known(Network, tables["network"])),
        interval=_numbers(tables["interval"]),
    )


def _tupled(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "capabilities": tuple(entry["capabilities"])}


def _known(kind: type, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that a class takes; what else stands there says where the numbers come from."""
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in entry.items() if key in names}


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key, value in entry.items() if isinstance(value, int | float)}
