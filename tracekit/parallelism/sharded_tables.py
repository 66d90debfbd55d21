"""What a recommender's sharded embedding tables make the slowest rank of a step do, and what ranks exchange."""

from dataclasses import dataclass
from enum import StrEnum

from tracekit.workload.ops.memory_traffic import Columns


class ExchangeGroup(StrEnum):
    """Which ranks exchange: all, those of each node, or those with the same place in each node."""

    ALL = "all"
    NODE = "node"
    RAIL = "rail"


@dataclass(frozen=True, slots=True)
class TableExchange:
    """A collective of sharded tables.

    Attributes:
        name: What is exchanged.
        collective: As :mod:`tracekit.comm` calls it.
        buffer_bytes: Of the buffer of the rank that has most.
        group: Which ranks exchange it.
    """

    name: str
    collective: str
    buffer_bytes: float
    group: ExchangeGroup = ExchangeGroup.ALL


@dataclass(frozen=True, eq=False)
class TableSharding:
    """What sharded tables make the slowest rank of a step do.

    Attributes:
        tables: Their number.
        ways: How many are sharded in which way.
        lookups: Columns of its look-ups' kernels, one after the other.
        updates: Columns of its updates' kernels.
        sums: Collectives behind the look-ups.
        gradients: Collectives before the updates.
        reduced: Collectives behind the updates: gradients of replicated tables.
        indices: Exchange of the next batch's indices, beside the forward pass.
        weight_bytes: Weights of all tables.
        whole_bytes: Memory of all tables with their optimizer's states.
        held_bytes: Memory that the fullest rank needs for its shards.
        busy_ratio: Time of its look-ups and updates over the mean rank's.
    """

    tables: int
    ways: str
    lookups: tuple[Columns, ...]
    updates: tuple[Columns, ...]
    sums: tuple[TableExchange, ...]
    gradients: tuple[TableExchange, ...]
    reduced: tuple[TableExchange, ...]
    indices: tuple[TableExchange, ...]
    weight_bytes: float
    whole_bytes: float
    held_bytes: float
    busy_ratio: float

    def summarise(self) -> dict[str, int | float | str]:
        """Return what a reader of the layout needs: the number of tables, their ways, memory and imbalance."""
        return {"tables": self.tables, "ways": self.ways, "held_bytes": self.held_bytes, "busy_ratio": self.busy_ratio}
