"""Collectives and what carries them, as columns: what the model is a function of."""

from dataclasses import dataclass
from typing import TypeVar

from tracekit.arrays import Bools, Floats
from tracekit.comm.constants import System

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
"""Of collectives of which a rank's part of the buffer stays where it is; 0 where all of it moves."""


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
        copies_gbps: That a GPU's SMs read and write for others and for itself, in 1e9 bytes/s.
        network_gbps: Of the network for each rank on the mean node, at line rate, in 1e9 bytes/s.
        network: Kind of the network.
        pcie: Whether the GPUs talk over PCI Express.
        nvls: Whether the switch can reduce and multicast.
        capability: The GPU's major compute capability; 0 where NCCL doesn't choose.
        system: Scales of the machine.
    """

    gbps: Floats
    copies_gbps: float
    network_gbps: Floats | float
    network: str
    pcie: Bools
    nvls: bool
    capability: int
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
    size_bytes: Floats
    ranks: Floats
    nodes: Floats
    adds: Bools
    custom: Bools | bool = False

    @property
    def ranks_per_node(self) -> Floats:
        """Ranks on each node."""
        return self.ranks / self.nodes

    @property
    def rounds(self) -> float:
        """How often the buffer goes around a ring."""
        return 2.0 if self.collective == "all_reduce" else 1.0
