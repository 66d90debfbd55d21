"""Plans of sharded tables, as plain data and in torchrec's form: sharding specifications by module and parameter.

    {"": {"user": {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1],
                   "sharding_spec": {"shards": [{"shard_offsets": [0, 0], "shard_sizes": [500, 64],
                                                 "placement": "rank:0/cuda:0"}, ...]}}}}

The fields of ``ParameterSharding``, ``EnumerableShardingSpec`` and ``ShardMetadata`` (torchrec/distributed/types.py,
torch/distributed/_shard). The key of the module is the path of the model's ``EmbeddingBagCollection``.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from predictors.result import SHARED_ERROR_FRACTION, sum_with_interval
from tracekit.messages import Message
from tracekit.sharding.candidates import ComputeKernel, ShardingSetting, ShardingType
from tracekit.sharding.tables import PlannedTable

if TYPE_CHECKING:
    from tracekit.sharding.search import Assignment

PARTS = ("lookup", "sums", "update", "gradients", "reduced", "indices")
"""Parts of a step's embedding time, one after the other."""
FAMILIES = {"lookup": 0, "update": 1}
"""Numbers of the parts that are kernels, each of a family of its own; the rest are exchanges."""


@dataclass(frozen=True, slots=True)
class TableShard:
    """A part of a table on a rank.

    Attributes:
        row: Its first row.
        column: Its first column.
    """

    rank: int
    row: int
    column: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class ShardedTable:
    """A table with its shards.

    Attributes:
        type: How it is split.
        kernel: Where its weights lie.
        shards: Its shards, by rank.
    """

    table: PlannedTable
    type: ShardingType
    kernel: ComputeKernel
    shards: tuple[TableShard, ...]


@dataclass(frozen=True, slots=True)
class PartTime:
    """Time of a part of the step, that of its slowest rank.

    Attributes:
        name: One of ``PARTS``.
        low_us: Lower end of the 90 % interval.
        high_us: Upper end.
        rank: The slowest rank; None where all have the same part.
    """

    name: str
    time_us: float
    low_us: float
    high_us: float
    rank: int | None = None


@dataclass(frozen=True)
class ShardingPlan:
    """How all tables are sharded, and what that takes.

    Attributes:
        name: What ways to shard a table were allowed.
        setting: The cluster and the batch.
        tables: The tables with their shards.
        parts: Times of the parts of a step.
        ranks: One row per rank: ``rank``, ``tables``, ``lookup_us``, ``update_us``, ``sent_bytes`` (sums that it
            sends), ``memory_bytes``, ``capacity_bytes``, ``host_bytes`` (its part of the host's memory).
        assignment: What it was evaluated from.
    """

    name: str
    setting: ShardingSetting
    tables: tuple[ShardedTable, ...]
    parts: tuple[PartTime, ...]
    ranks: pl.DataFrame
    assignment: "Assignment"

    @property
    def time_us(self) -> float:
        """Embedding time of a step: look-ups, updates, and exchanges that nothing hides."""
        return sum(part.time_us for part in self.parts)

    @property
    def low_us(self) -> float:
        """Lower end of the interval."""
        return self._ends_us[0]

    @property
    def high_us(self) -> float:
        """Upper end of the interval."""
        return self._ends_us[1]

    @cached_property
    def _ends_us(self) -> tuple[float, float]:
        """Ends of the interval; errors of exchanges add up, as they are those of one law.

        Those of look-ups and updates are of two families of kernels, but where nobody knows how rows are drawn, both
        are long or short together.
        """
        is_known = all(one.table.pattern is not None for one in self.tables)
        family = [FAMILIES.get(part.name, len(FAMILIES)) for part in self.parts]
        shared = [SHARED_ERROR_FRACTION if is_known and part.name in FAMILIES else 1.0 for part in self.parts]
        times = ([getattr(part, name) for part in self.parts] for name in ("time_us", "low_us", "high_us"))
        time, low, high = map(np.array, times)
        numbers = np.array(family) if is_known else np.maximum(family, len(FAMILIES) - 1)
        return sum_with_interval(time, low, high, np.array(shared), numbers)[1:]

    @property
    def imbalance(self) -> float:
        """Time of the slowest rank's kernels over the mean rank's."""
        busy = self.ranks["lookup_us"] + self.ranks["update_us"]
        mean = float(busy.mean() or 0.0)  # type: ignore[arg-type]
        return float(busy.max()) / mean if mean else 1.0  # type: ignore[arg-type]

    @cached_property
    def shards(self) -> pl.DataFrame:
        """One row per shard: ``table``, ``type``, ``kernel``, ``rank``, ``row``, ``column``, ``rows``, ``columns``."""
        return pl.DataFrame(
            [
                {"table": one.table.name, "type": str(one.type), "kernel": str(one.kernel), "rank": shard.rank,
                 "row": shard.row, "column": shard.column, "rows": shard.rows, "columns": shard.columns}
                for one in self.tables
                for shard in one.shards
            ]
        )  # fmt: skip


@dataclass(frozen=True)
class ShardingPlans:
    """Plans for one cluster, the fastest first.

    Attributes:
        setting: The cluster and the batch.
        plans: The plans.
        notes: What is assumed.
    """

    setting: ShardingSetting
    plans: tuple[ShardingPlan, ...]
    notes: tuple[Message, ...] = ()

    @property
    def best(self) -> ShardingPlan:
        """The fastest plan."""
        return self.plans[0]

    def to_polars(self) -> pl.DataFrame:
        """Return one row per plan: its times, the slowest rank's share, and the fullest rank's memory."""
        return pl.DataFrame(
            [
                {"plan": plan.name, "time_us": plan.time_us, "low_us": plan.low_us, "high_us": plan.high_us}
                | {f"{part.name}_us": part.time_us for part in plan.parts}
                | {"imbalance": plan.imbalance, "memory_bytes": plan.ranks["memory_bytes"].max()}
                for plan in self.plans
            ]
        )


DEFAULT_MODULE = "sparse_arch.embedding_bag_collection"
"""Path of the collection in torchrec's own DLRM."""


def encode_torchrec_plan(plan: ShardingPlan, module: str = DEFAULT_MODULE) -> bytes:
    """Encode a plan as JSON.

    ``module`` is the path of the embedding collection in the model.
    """
    per_node = plan.setting.ranks_per_node
    parameters = {one.table.name: _describe_parameter(one, per_node) for one in plan.tables}
    return msgspec.json.format(msgspec.json.encode({module: parameters}), indent=1) + b"\n"


def _describe_parameter(one: ShardedTable, per_node: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "sharding_type": str(one.type),
        "compute_kernel": str(one.kernel),
        "ranks": [shard.rank for shard in one.shards],
    }
    # A replicated table has no shards: DistributedDataParallel reduces its gradients.
    if one.type is ShardingType.DATA_PARALLEL or one.kernel is ComputeKernel.DENSE:
        return described | {"sharding_spec": None}
    return described | {"sharding_spec": {"shards": [_describe_shard(shard, per_node) for shard in one.shards]}}


def _describe_shard(shard: TableShard, per_node: int) -> dict[str, Any]:
    return {
        "shard_offsets": [shard.row, shard.column],
        "shard_sizes": [shard.rows, shard.columns],
        "placement": f"rank:{shard.rank}/cuda:{shard.rank % per_node}",
    }
