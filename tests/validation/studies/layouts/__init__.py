"""How far off is a job in another parallel layout, or on more GPUs?"""

TABLES = (
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "sharding",
    "memory",
    "plan_order",
    "torchrec_planner",
)
