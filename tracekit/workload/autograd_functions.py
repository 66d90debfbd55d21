"""Find the inputs of the backward passes of autograd functions written in Python: those of their forward call.

Such a backward pass takes only the gradients of the outputs; what the forward call saved isn't among its arguments.
Autograd gives both the same sequence number, and names the backward pass after the function: ``_LayerNormLinear``,
``_LayerNormLinearBackward``.
"""

import polars as pl

BACKWARD_FUNCTION = r"^([A-Za-z_]\w*)Backward$"
FORWARD_COLUMNS = ("forward_dims", "forward_types", "forward_concrete")


def find_forward_inputs(ops: pl.DataFrame) -> pl.DataFrame:
    """Find the shapes, types and values of the forward call's inputs for each backward pass; null for all other ops.

    Args:
        ops: As in the trace (``schema.OPS``).

    Returns:
        One row per op with the columns ``FORWARD_COLUMNS``, each as recorded.
    """
    rows = ops.with_row_index("row").filter(pl.col("sequence") >= 0)
    passes = rows.select(
        "row", "ts_ns", "sequence", function=pl.col("name").str.extract(BACKWARD_FUNCTION)
    ).drop_nulls()
    calls = rows.join(passes.select("function").unique(), left_on="name", right_on="function", how="semi")
    forward = calls.select(
        "ts_ns",
        "sequence",
        function="name",
        forward_dims="input_dims",
        forward_types="input_types",
        forward_concrete="concrete_inputs",
    )
    # Each thread counts for itself: among equal numbers, the latest before the backward pass is its forward call.
    found = passes.sort("ts_ns").join_asof(
        forward.sort("ts_ns"), on="ts_ns", by=["sequence", "function"], check_sortedness=False
    )
    numbered = ops.select(row=pl.int_range(pl.len(), dtype=pl.UInt32))
    return numbered.join(found, on="row", how="left", maintain_order="left").select(FORWARD_COLUMNS)
