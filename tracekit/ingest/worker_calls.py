"""Calls of serving engines' workers among a trace's Python calls: each runs one batch.

They are read without stacks too, as steps are told by them; of what they are named only the function is kept.
"""

import polars as pl

WORKER_FUNCTIONS = ("execute_model", "run_batch", "_run_batch_inner", "forward_batch_generation", "_forward_step")
"""Functions of vLLM, SGLang and TensorRT-LLM, by the names of which Python calls end."""

WORKER_CALL = rf"^(?:{'|'.join(WORKER_FUNCTIONS)})$"
_FRAME = rf"\): ({'|'.join(WORKER_FUNCTIONS)})$"
_ENDS = tuple(f"): {name}" for name in WORKER_FUNCTIONS)


def is_worker_call(name: object) -> bool:
    """Return whether a Python call, such as ``worker.py(12): execute_model``, runs a batch."""
    return isinstance(name, str) and name.endswith(_ENDS)


def select_worker_calls(frames: pl.DataFrame) -> pl.DataFrame:
    """Select the calls that run a batch, named by their function."""
    return frames.with_columns(pl.col("name").str.extract(_FRAME)).drop_nulls("name")
