"""Input columns of the collective model: the collectives, and the links that they use."""

from dataclasses import dataclass
from typing import TypeVar

from tracekit.arrays import Bools, Floats
from tracekit.comm.constants import MachineScales

Number = TypeVar("Number", float, Floats)

BUS_FACTOR = {
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "all_to_all": 1.0,
    "broadcast": 0.0,
    "reduce": 0.0,
    "send_recv": 0.0,
}
"""Numerator of the bus bandwidth factor; 0 for collectives that move the whole buffer."""


def compute_bus_factor(collective: str, ranks: Number) -> Number:
    """Compute the bytes sent over each link per byte of the buffer (nccl-tests, doc/PERFORMANCE.md)."""
    factor = BUS_FACTOR.get(collective, 0.0)
    return factor * (ranks - 1) / ranks if factor else ranks / ranks


@dataclass(frozen=True, slots=True)
class CollectiveLinks:
    """Bandwidths and properties of the links of a collective, one number per row or one for all.

    Attributes:
        gbps: Datasheet bandwidth of a GPU's links into its node, in one direction, in 1e9 bytes/s.
        copy_gbps: Rate at which a GPU's SMs read and write, for other GPUs and for itself, in 1e9 bytes/s.
        network_gbps: Network bandwidth per rank on the mean node, at line rate, in 1e9 bytes/s.
        network: Kind of the network.
        is_pcie: Whether the GPUs communicate over PCI Express.
        has_nvls: Whether the switch can reduce and multicast (NVLink SHARP).
        compute_capability_major: The GPU's major compute capability; 0 where the choice of NCCL's tuner isn't modelled.
        system: Scales of the measured machine.
    """

    gbps: Floats
    copy_gbps: float
    network_gbps: Floats | float
    network: str
    is_pcie: Bools
    has_nvls: bool
    compute_capability_major: int
    system: MachineScales


@dataclass(frozen=True, slots=True)
class CollectiveCalls:
    """Collectives of one kind, one element per row.

    Attributes:
        collective: Name of the collective, a key of ``BUS_FACTOR``.
        size_bytes: Size of the whole buffer, as nccl-tests counts it.
        ranks: Number of ranks.
        nodes: Number of nodes; the ranks are spread evenly.
        has_nvls_dtype: Whether NVLS can reduce the dtype.
        has_custom_allreduce: Whether the job has custom all-reduces, which it uses where they are faster than NCCL's.
    """

    collective: str
    size_bytes: Floats
    ranks: Floats
    nodes: Floats
    has_nvls_dtype: Bools
    has_custom_allreduce: Bools | bool = False

    @property
    def ranks_per_node(self) -> Floats:
        """Ranks on each node."""
        return self.ranks / self.nodes

    @property
    def rounds(self) -> float:
        """Number of times that the buffer goes around a ring."""
        return 2.0 if self.collective == "all_reduce" else 1.0
