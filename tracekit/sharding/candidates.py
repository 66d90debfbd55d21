"""Where tables are sharded, and the ways to shard one: torchrec's sharding types, and where its weights lie.

    table_wise        the whole table on one rank
    column_wise       columns over some ranks: each looks up a part of every row
    row_wise          rows over all ranks: each sums up what it has, and the sums are reduced
    table_row_wise    rows over the ranks of one node
    grid_shard        columns over some nodes, whose ranks split the rows of theirs
    data_parallel     the whole table on every rank, which looks up its own samples; gradients are reduced

What doesn't fit into the GPUs' memory lies in the hosts', split in the same ways but for copies.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from zlib import crc32

from tracekit.arrays import Floats
from tracekit.comm import Cluster
from tracekit.comm.cluster import USABLE_MEMORY_FRACTION
from tracekit.models.lookups import USUAL_PATTERN, IndexPattern, TablePart
from tracekit.sharding.tables import PlannedTable
from tracekit.workload.ops.memory_traffic import INDEX_BYTES
from tracekit.workload.ops.table_lookups import CACHED_FRACTION, FP32_BYTES, Placement, TableLookup

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
        sum_bytes: Bytes of an element of a sum and of its gradient between ranks: 2 with mixed precision.
    """

    cluster: Cluster
    batch: int
    dense_bytes: float = 0.0
    dense_time_us: float = 0.0
    sum_bytes: int = FP32_BYTES

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


MIN_SHARD_WIDTH = 32
"""Elements of the narrowest column shard: FBGEMM's warp of 32 threads loads four elements each, and a row of fewer
leaves most of it idle."""
VECTOR_ELEMENTS = 4
"""FBGEMM loads four elements at once, so that widths are multiples of it."""
MAX_KEPT_SHARES = 1 << 14
MAX_REPLICA_BYTES = 1 << 30
"""Largest table that every rank may hold: the gradient of a larger one takes longer than any exchange of sums."""


class ShardingType(StrEnum):
    """How a table is split, by torchrec's name."""

    TABLE_WISE = "table_wise"
    COLUMN_WISE = "column_wise"
    ROW_WISE = "row_wise"
    TABLE_ROW_WISE = "table_row_wise"
    GRID = "grid_shard"
    DATA_PARALLEL = "data_parallel"


class ComputeKernel(StrEnum):
    """Where the weights lie and what updates them, by torchrec's name."""

    FUSED = "fused"
    HOST = "fused_uvm"
    CACHED = "fused_uvm_caching"
    DENSE = "dense"


HOSTED_LABELS = {ComputeKernel.CACHED: ", in host memory with a cache", ComputeKernel.HOST: ", in host memory"}
"""What is told of tables in the hosts' memory: with a cache first, as its hits are faster."""
PLACEMENTS = {ComputeKernel.HOST: Placement.MANAGED, ComputeKernel.CACHED: Placement.MANAGED_CACHING}


@dataclass(frozen=True, slots=True)
class TableOption:
    """A way to shard a table.

    Attributes:
        type: How it is split.
        kernel: Where its weights lie.
        columns: Column shards; 1 where rows stay whole.
        parts: Ranks that split the rows, or nodes of a type that is split in nodes; 0 for those of the type, which are
            all ranks or one node. torchrec has no others, HugeCTR has.
    """

    type: ShardingType
    kernel: ComputeKernel = ComputeKernel.FUSED
    columns: int = 1
    parts: int = 0

    @property
    def label(self) -> str:
        """Short name."""
        over = max(self.columns, self.parts)
        split = f"{self.type} over {over}" if over > 1 else str(self.type)
        split += " nodes" if over > 1 and self.is_split_in_nodes else ""
        return split + HOSTED_LABELS.get(self.kernel, "")

    @property
    def is_hosted(self) -> bool:
        """Whether the weights lie in the hosts' memory."""
        return self.kernel in HOSTED_LABELS

    @property
    def is_placed(self) -> bool:
        """Whether its shards may lie on any rank; those of other types have their ranks by the type."""
        is_of_some = self.type is ShardingType.ROW_WISE and self.parts > 0
        return is_of_some or self.type in (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE)

    @property
    def is_split_in_nodes(self) -> bool:
        """Whether the ranks of a node split its rows, and reduce their sums first."""
        return self.type in (ShardingType.TABLE_ROW_WISE, ShardingType.GRID)

    def count_shards(self, setting: ShardingSetting) -> int:
        """Count the ranks that hold a shard."""
        if self.is_placed or self.is_split_in_nodes:
            return self.columns * self.count_row_shards(setting)
        return setting.ranks

    def count_row_shards(self, setting: ShardingSetting) -> int:
        """Count the ranks that split the rows of a column shard."""
        if self.is_split_in_nodes:
            return setting.ranks_per_node * max(self.parts, 1)
        return (self.parts or setting.ranks) if self.type is ShardingType.ROW_WISE else 1


def list_options(table: PlannedTable, setting: ShardingSetting) -> list[TableOption]:
    """List the ways to shard a table with its weights on the GPUs, and last in the hosts' memory."""
    shared = [TableOption(ShardingType.TABLE_WISE)]
    columns = _list_column_shards(table.width, setting.ranks)
    shared += [TableOption(ShardingType.COLUMN_WISE, columns=count) for count in columns]
    if table.rows >= setting.ranks > 1:
        shared.append(TableOption(ShardingType.ROW_WISE))
    if setting.cluster.nodes > 1 and table.rows >= setting.ranks_per_node > 1:
        shared.append(TableOption(ShardingType.TABLE_ROW_WISE))
        shared += [TableOption(ShardingType.GRID, columns=count) for count in columns if count <= setting.cluster.nodes]
    hosted = [replace(option, kernel=kernel) for kernel in HOSTED_LABELS for option in shared]
    if setting.ranks > 1 and table.weight_bytes <= MAX_REPLICA_BYTES:
        shared.append(TableOption(ShardingType.DATA_PARALLEL, ComputeKernel.DENSE))
    return [*shared, *hosted]


def _list_column_shards(width: int, ranks: int) -> list[int]:
    """List the numbers of column shards, each twice the one before: of equal width, one a rank at most."""
    counts = [1 << power for power in range(1, ranks.bit_length()) if 1 << power <= ranks]
    return [n for n in counts if width % (n * VECTOR_ELEMENTS) == 0 and width // n >= MIN_SHARD_WIDTH]


def describe_shard(
    table: PlannedTable, option: TableOption, setting: ShardingSetting, place: int | None = None
) -> TableLookup:
    """Return the look-ups of a shard: of the ranks that split rows, the one at a place, or their mean."""
    drawn, width = table.pooling * table.features, table.width // option.columns
    if option.type is ShardingType.DATA_PARALLEL:
        return table.describe_lookup(table.rows, width, setting.batch * drawn, setting.batch * table.features)
    over = option.count_row_shards(setting)
    share = 1 / over if place is None else float(compute_row_shares(table, over)[place])
    indices, bags = setting.samples * drawn * share, setting.samples * table.features
    lookup = table.describe_lookup(-(-table.rows // over), width, indices, bags)
    if place is not None and over > 1:
        lookup = replace(lookup, part=TablePart(table.rows, over, place, _hash_name(table)))
    return lookup.move_to(PLACEMENTS.get(option.kernel, Placement.DEVICE))


def compute_row_shares(table: PlannedTable, over: int) -> Floats:
    """Compute what share of a table's look-ups each of the ranks that split its rows has.

    Rows lie where a hash puts them, so that the ranks of the most frequent rows have more than others.
    """
    return _compute_row_shares(table.pattern or USUAL_PATTERN, TablePart(table.rows, over, seed=_hash_name(table)))


@lru_cache(maxsize=MAX_KEPT_SHARES)
def _compute_row_shares(pattern: IndexPattern, part: TablePart) -> Floats:
    return pattern.get_distribution(part.rows).compute_part_shares(part)


def _hash_name(table: PlannedTable) -> int:
    return crc32(table.name.encode())


def compute_shard_bytes(table: PlannedTable, option: TableOption, setting: ShardingSetting) -> float:
    """Return the bytes of the GPU's memory that a shard takes: weights, the optimizer's state, and its sums twice."""
    held = (
        _compute_cached_bytes(table, option, setting)
        if option.is_hosted
        else _compute_held_bytes(table, option, setting)
    )
    lookup = describe_shard(table, option, setting)
    gradient = table.weight_bytes if option.type is ShardingType.DATA_PARALLEL else 0.0
    return held + gradient + 2 * lookup.bags * lookup.width * setting.sum_bytes + lookup.indices * INDEX_BYTES


def compute_host_bytes(table: PlannedTable, option: TableOption, setting: ShardingSetting) -> float:
    """Return the bytes of its host's memory that a shard takes: weights and the optimizer's state."""
    return _compute_held_bytes(table, option, setting) if option.is_hosted else 0.0


def _compute_cached_bytes(table: PlannedTable, option: TableOption, setting: ShardingSetting) -> float:
    """Compute the bytes of the GPU's memory that caches of a shard in the host's take: of weights alone."""
    cached = CACHED_FRACTION if option.kernel is ComputeKernel.CACHED else 0.0
    return cached * table.weight_bytes / option.count_shards(setting)


def _compute_held_bytes(table: PlannedTable, option: TableOption, setting: ShardingSetting) -> float:
    over = 1 if option.type is ShardingType.DATA_PARALLEL else option.count_shards(setting)
    return (table.weight_bytes + table.state_bytes) / over
