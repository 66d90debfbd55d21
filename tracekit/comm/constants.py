"""Constants of the collective model, fitted and published."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

PROTOCOLS = ("LL", "LL128", "Simple")
CONSTANTS_FILE = Path(__file__).with_name("constants.toml")


@dataclass(frozen=True, slots=True)
class ProtocolCosts:
    """Costs of a protocol inside a node: NCCL's for rings, NVLS through the switch, or a custom kernel.

    Attributes:
        base_us: Time to launch the collective and to end it.
        hop_us: Time from one GPU to the next.
        cost: Time per byte over that of the datasheet's link, in one direction.
        pipeline: Weight of the time to fill the pipeline, ``sqrt(latency x transfer)``; 2 for chunks of the best size
            (Thakur, Rabenseifner and Gropp, Optimization of Collective Communication in MPICH, 2005).
        growth: Factor on the latency for each doubling of the threads of a launch.
    """

    base_us: float
    hop_us: float
    cost: float
    pipeline: float
    growth: float = 1.0


@dataclass(frozen=True, slots=True)
class MachineScales:
    """Factors of one measured machine relative to the mean of all, shrunk towards 1.

    Attributes:
        latency: Factor on every latency inside a node.
        hop: Additional factor on the latency of hops.
        bandwidth: Factor on the link's bandwidth.
        capabilities: Compute capabilities of the GPUs that the machine stands for.
        nvls: Bandwidth of an NVLS all-reduce relative to Hopper's.
        custom: Factor on the latency of custom all-reduces (not NCCL's).
    """

    latency: float = 1.0
    hop: float = 1.0
    bandwidth: float = 1.0
    capabilities: tuple[str, ...] = ()
    nvls: float = 1.0
    custom: float = 1.0


@dataclass(frozen=True, slots=True)
class PcieScales:
    """Factors of PCI Express relative to NVLink.

    Attributes:
        latency: Factor on every latency.
        cost: Factor on the time per byte.
        beyond_two: Fraction of the bandwidth left if more than two GPUs use the host bridges.
        staged: Fraction of the bandwidth left without peer access, when all data goes through host memory.
    """

    latency: float
    cost: float
    beyond_two: float
    staged: float


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """Costs of the network between nodes.

    Attributes:
        efficiency: Fraction of the line rate available for data, by kind of network.
        latency: Factor on ``ring_us`` and ``tree_us``, by kind of network.
        ring_us: Time from one node to the next, by protocol.
        tree_us: Time from a node to its parent in the tree, by protocol.
        tree_cost: Time per byte of a tree inside a node, over that of a ring.
        share: Fraction of the line rate that a protocol's flags leave for data.
    """

    efficiency: Mapping[str, float]
    latency: Mapping[str, float]
    ring_us: Mapping[str, float]
    tree_us: Mapping[str, float]
    tree_cost: float
    share: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ExchangeCosts:
    """Costs of an exchange of tokens between experts inside a node, not NCCL's.

    Attributes:
        base_us: Time of an exchange of one token: launches, the counts that ranks tell each other, sorting.
        gbps: Rate at which a rank sends to the others, in 1e9 bytes/s. The exchange's SMs limit it, not the links.
        known: Half width of the 90 % interval as a factor, on GPUs of the measured machines.
        unseen: The same elsewhere.
    """

    base_us: float
    gbps: float
    known: float
    unseen: float


@dataclass(frozen=True, slots=True)
class ExchangeScales:
    """Factors of a group of measured machines relative to the mean of all, by library.

    Attributes:
        gpus: Slugs of their GPUs.
        latency: Factor on ``base_us``.
        bandwidth: Factor on ``gbps``.
    """

    gpus: tuple[str, ...]
    latency: Mapping[str, float]
    bandwidth: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ExchangeConstants:
    """Constants of exchanges of tokens between experts.

    Attributes:
        costs: By library, mode and phase, such as 'vllm_low_latency_dispatch'.
        machines: By name of the group of machines.
    """

    costs: Mapping[str, ExchangeCosts]
    machines: Mapping[str, ExchangeScales]

    def find_machine_scales(self, gpu: str) -> ExchangeScales | None:
        """Find the factors of a GPU, by its slug; None where it wasn't measured."""
        return next((scales for scales in self.machines.values() if gpu in scales.gpus), None)


@dataclass(frozen=True, slots=True)
class CollectiveConstants:
    """All constants of the collective model.

    Attributes:
        protocols: Costs of the ring by protocol; of 'direct_LL' and 'direct_Simple', which send to every rank at once;
            of 'NVLS'; of 'one_shot' and 'two_shot'.
        own: By collective in a ring: time per byte that a rank copies to itself, over that of a byte sent; at most 1.
        bytes_per_clock: Bytes that each SM of a GPU copies per clock.
        systems: Factors by name of the measured machine.
        pcie: Factors for GPUs that communicate over PCI Express.
        rccl: Factors of AMD's GPUs.
        network: Costs between nodes.
        interval: Half width of the 90 % interval as a factor, by how much is known.
        exchanges: Those of exchanges of tokens between experts.
    """

    protocols: Mapping[str, ProtocolCosts]
    own: Mapping[str, float]
    bytes_per_clock: float
    systems: Mapping[str, MachineScales]
    pcie: PcieScales
    rccl: MachineScales
    network: NetworkCosts
    interval: Mapping[str, float]
    exchanges: ExchangeConstants

    def find_machine_scales(self, vendor: str, capability: str) -> tuple[str | None, MachineScales]:
        """Find the measured machine that stands for a GPU; return its name (None without one) and its factors.

        Args:
            vendor: 'nvidia' or 'amd'.
            capability: The GPU's compute capability.
        """
        if vendor == "amd":
            return None, self.rccl
        for name, system in self.systems.items():
            if capability in system.capabilities:
                return name, system
        return None, MachineScales()


@cache
def load_constants() -> CollectiveConstants:
    """Load the shipped constants."""
    return parse_constants(tomllib.loads(CONSTANTS_FILE.read_text(encoding="utf-8")))


def parse_constants(tables: Mapping[str, Any]) -> CollectiveConstants:
    """Parse constants from the tables of a TOML file.

    Args:
        tables: The file's tables; [fit], which documents the fit, is not needed.
    """
    systems = {name: MachineScales(**_convert_capabilities(entry)) for name, entry in tables["systems"].items()}
    return CollectiveConstants(
        protocols={name: ProtocolCosts(**entry) for name, entry in tables["protocols"].items()},
        own=_select_numbers(tables["own"]),
        bytes_per_clock=tables["copies"]["bytes_per_clock"],
        systems=systems,
        pcie=PcieScales(**_select_fields(PcieScales, tables["pcie"])),
        rccl=MachineScales(**_select_fields(MachineScales, tables["rccl"])),
        network=NetworkCosts(**_select_fields(NetworkCosts, tables["network"])),
        interval=_select_numbers(tables["interval"]),
        exchanges=_parse_exchanges(tables["exchanges"]),
    )


def _parse_exchanges(tables: Mapping[str, Any]) -> ExchangeConstants:
    return ExchangeConstants(
        costs={name: ExchangeCosts(**entry) for name, entry in tables["costs"].items()},
        machines={
            name: ExchangeScales(tuple(entry["gpus"]), entry["latency"], entry["bandwidth"])
            for name, entry in tables["machines"].items()
        },
    )


def _convert_capabilities(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "capabilities": tuple(entry["capabilities"])}


def _select_fields(kind: type, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Select the entries that are fields of a class; the other entries of the table cite sources."""
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in entry.items() if key in names}


def _select_numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key, value in entry.items() if isinstance(value, int | float)}
