"""How far off is the predicted time of a kernel?"""

TABLES = (
    "in_traces",
    "vector_kernels",
    "kernelbench",
    "by_family",
    "unseen_gpus",
    "large_gemms",
    "without_shapes",
    "booster",
    "held",
)
