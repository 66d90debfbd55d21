"""Plan how the embedding tables of a recommender are sharded over the GPUs of a cluster.

    tables -> candidates (ways to shard each) -> loads (what a shard costs its rank) -> search -> plans

``plan_sharding`` goes all the way.
"""

from tracekit.sharding.candidates import ShardingSetting
from tracekit.sharding.plan import ShardingPlan, ShardingPlans
from tracekit.sharding.planner import plan_sharding
from tracekit.sharding.tables import PlannedTable

__all__ = ["PlannedTable", "ShardingPlan", "ShardingPlans", "ShardingSetting", "plan_sharding"]
