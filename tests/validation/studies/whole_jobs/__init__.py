"""How far off is the predicted step of a whole job on another GPU?"""

TABLES = (
    *("trace_pairs", "step_energy", "held_clocks", "throughputs", "batch_sizes"),
    *(
        "fp32_models",
        "captured_models",
        "neusight_jobs",
        "timm_random",
        "captured_configs",
        "captured_steps",
        "captured_recordings",
        "sharpened_steps",
        "served_jobs",
        "served_loads",
        "served_steps",
        "recommenders",
        "training_jobs",
        "cpus",
        "published_cpus",
    ),
)
