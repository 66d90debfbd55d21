"""Embedding tables as a sharding plan needs them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tracekit.models.dlrm import DEFAULT_POOLING, TableSpec
from tracekit.models.lookups import IndexPattern, ZipfPattern
from tracekit.workload.ops.table_lookups import TableLookup, compute_state_bytes

WEIGHT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of a weight by its type."""
DEFAULT_WEIGHT_TYPE = "fp32"
DEFAULT_OPTIMIZER = "rowwise_adagrad"
"""The optimizer of torchrec's examples and of most jobs with tables of billions of weights."""


@dataclass(frozen=True, slots=True)
class TableDefaults:
    """What counts for tables that don't tell it themselves.

    Attributes:
        weight_type: Type of the weights.
        optimizer: What updates them; None for what a trace tells, else ``DEFAULT_OPTIMIZER``.
        pattern: How rows are looked up; None if nobody knows.
    """

    weight_type: str = DEFAULT_WEIGHT_TYPE
    optimizer: str | None = None
    pattern: IndexPattern | None = None


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """An embedding table that is to be sharded.

    Attributes:
        name: Its name, unique in a plan.
        rows: Rows.
        width: Elements of a row.
        pooling: Mean look-ups of a sample for each feature, whose rows are summed.
        pattern: How its rows are looked up; None if nobody knows.
        weight_type: A key of ``WEIGHT_BYTES``.
        optimizer: A key of ``table_lookups.OPTIMIZER_STATE``.
        features: Features that share the table.
    """

    name: str
    rows: int
    width: int
    pooling: float = DEFAULT_POOLING
    pattern: IndexPattern | None = None
    weight_type: str = DEFAULT_WEIGHT_TYPE
    optimizer: str = DEFAULT_OPTIMIZER
    features: int = 1

    @property
    def item_bytes(self) -> int:
        """Bytes of a weight."""
        return WEIGHT_BYTES[self.weight_type]

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        return float(self.rows) * self.width * self.item_bytes

    @property
    def state_bytes(self) -> float:
        """Bytes of the optimizer's state."""
        return self.rows * compute_state_bytes(self.optimizer, self.width)

    @property
    def dense_step_bytes(self) -> float:
        """Bytes that a replica's optimizer moves: a gradient is cleared and read, all weights and states change."""
        return 4 * self.weight_bytes + 2 * self.state_bytes

    def describe_lookup(self, rows: int, width: int, indices: float, bags: float) -> TableLookup:
        """Return the look-ups of a shard.

        Args:
            rows: Rows that it has.
            width: Elements of its rows.
            indices: Rows looked up in it.
            bags: Sums written.
        """
        return TableLookup(max(rows, 1), width, indices, bags, self.item_bytes, self.pattern)


def expand_specs(specs: Iterable[TableSpec], defaults: TableDefaults, first: int = 0) -> list[PlannedTable]:
    """Return the tables that a user wrote as ``26*1000000x128:20``, named ``table_0`` and so on as torchrec does.

    Args:
        specs: Kinds of tables.
        defaults: What counts for all of them.
        first: Number of the first table.
    """
    kinds = [
        PlannedTable(
            name="",
            rows=spec.rows,
            width=spec.width,
            pooling=spec.pooling,
            pattern=defaults.pattern if spec.alpha is None else ZipfPattern(spec.alpha),
            weight_type=defaults.weight_type,
            optimizer=defaults.optimizer or DEFAULT_OPTIMIZER,
        )
        for spec in specs
        for _ in range(spec.count)
    ]
    return [replace(kind, name=f"table_{number}") for number, kind in enumerate(kinds, first)]
