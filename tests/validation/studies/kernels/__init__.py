"""How far off is the predicted time of a kernel?"""

TABLES = ("in_traces", "vector_kernels", "kernelbench", "without_shapes", "unseen_gpus", "booster")
