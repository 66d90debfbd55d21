"""Write a plan in torchrec's form: sharding specifications by module and parameter.

    {"": {"user": {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1],
                   "sharding_spec": {"shards": [{"shard_offsets": [0, 0], "shard_sizes": [500, 64],
                                                 "placement": "rank:0/cuda:0"}, ...]}}}}

The fields of ``ParameterSharding``, ``EnumerableShardingSpec`` and ``ShardMetadata`` (torchrec/distributed/types.py,
torch/distributed/_shard). The key of the module is the path of the model's ``EmbeddingBagCollection``.
"""

from typing import Any

import msgspec

from tracekit.sharding.candidates import ComputeKernel, ShardingType
from tracekit.sharding.plan import ShardedTable, ShardingPlan, TableShard

DEFAULT_MODULE = "sparse_arch.embedding_bag_collection"
"""Path of the collection in torchrec's own DLRM."""


def encode_torchrec_plan(plan: ShardingPlan, module: str = DEFAULT_MODULE) -> bytes:
    """Encode a plan as JSON.

    Args:
        plan: The plan.
        module: Path of the embedding collection in the model.
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
