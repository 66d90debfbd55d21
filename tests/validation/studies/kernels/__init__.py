"""How far off is the predicted time of a kernel?"""

TABLES = (
    "hidden_shapes",
    "in_traces",
    "vector_kernels",
    "kernelbench",
    "by_family",
    "large_gemms",
    "power_limit",
    "without_shapes",
    "booster",
    "held",
    "lookups",
    "fbgemm",
    "published_lookups",
    "training_attention",
    "deepgemm",
    "served_formats",
    "too_fast",
    "amd_gemms",
    "releases",
    "new_releases",
)
