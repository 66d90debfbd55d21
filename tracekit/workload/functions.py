"""Backward passes of autograd functions that are written in Python: their inputs are those of their forward call.

Such a pass takes the gradients of the outputs only; what the forward call saved is in no argument. Autograd gives both
the same sequence number, and names the pass after the function: ``_LayerNormLinear``, ``_LayerNormLinearBackward``.
"""

import polars as pl

PASS = r"^([A-Za-z_]\w*)Backward$"
COLUMNS = ("forward_dims", "forward_types", "forward_concrete")


def forward_inputs(ops: pl.DataFrame) -> pl.DataFrame:
    """Shapes, types and values that the forward call of each backward pass took; null for all other ops.

    Args:
        ops: As in the trace (``schema.OPS``).

    Returns:
        One row per op, columns as ``COLUMNS``, each as recorded.
    """
    rows = ops.with_row_index("row").filter(pl.col("sequence") >= 0)
    passes = rows.select("row", "ts_ns", "sequence", function=pl.col("name").str.extract(PASS)).drop_nulls()
    calls = rows.join(passes.select("function").unique(), left_on="name", right_on="function", how="semi")
    forward = calls.select(
        "ts_ns",
        "sequence",
        function="name",
        forward_dims="input_dims",
        forward_types="input_types",
        forward_concrete="concrete_inputs",
    )
    # Each thread has numbers of its own: of equal ones the latest before the pass is meant.
    found = passes.sort("ts_ns").join_asof(
        forward.sort("ts_ns"), on="ts_ns", by=["sequence", "function"], check_sortedness=False
    )
    numbered = ops.select(row=pl.int_range(pl.len(), dtype=pl.UInt32))
    return numbered.join(found, on="row", how="left", maintain_order="left").select(COLUMNS)
