"""Where tables are sharded, and for which batch."""

from dataclasses import dataclass

from tracekit.comm import Cluster
from tracekit.prediction.memory import USABLE_MEMORY_FRACTION

USABLE_HOST_MEMORY_FRACTION = 0.95
"""Of a host's memory, for tables: the rest is the system's and the processes'. A judgement."""


@dataclass(frozen=True, slots=True)
class ShardingSetting:
    """The cluster and the batch that a plan is for.

    Attributes:
        cluster: The cluster, of which each GPU is a rank.
        batch: Samples of a rank in a step.
        dense_bytes: Memory of a rank that the rest of the model takes.
        dense_time_us: Time of the dense layers' forward pass, during which the next batch's indices are exchanged; 0
            if they are exchanged before anything else.
    """

    cluster: Cluster
    batch: int
    dense_bytes: float = 0.0
    dense_time_us: float = 0.0

    @property
    def ranks(self) -> int:
        """Ranks."""
        return self.cluster.gpus

    @property
    def ranks_per_node(self) -> int:
        """Ranks of a node."""
        return self.cluster.gpus_per_node

    @property
    def samples(self) -> int:
        """Samples of all ranks, which the owner of a whole table looks up."""
        return self.batch * self.ranks

    @property
    def capacity_bytes(self) -> float:
        """Memory of a rank for its tables."""
        return USABLE_MEMORY_FRACTION * self.cluster.gpu.memory_bytes - self.dense_bytes

    @property
    def host_capacity_bytes(self) -> float:
        """Part of a rank in its host's memory for tables, which the ranks of a host share evenly."""
        return USABLE_HOST_MEMORY_FRACTION * self.cluster.host_memory_bytes / self.ranks_per_node
