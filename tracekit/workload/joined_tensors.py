"""Infer the size of concatenations whose parts weren't recorded: traces of 2021 have no sizes of lists of tensors.

Two other ops have it. The backward pass of a concatenation takes the gradient of its result; that of a split joins the
gradients of the parts, which it takes:

    aten::cat []  (forward, sequence number 7)         CatBackward0 [[1024, 3328]]  (sequence number 7)
    SplitBackward0 [[1024, 256], [1024, 256]]          aten::cat []  (inside)
"""

import json
import math

import polars as pl

from tracekit.workload.owners import find_innermost_ops

JOIN_OP = r"^aten::_?cat$"
UNRECORDED = "[[],"
"""How the inputs begin of an op whose list of tensors has no sizes."""
BACKWARD_OF_JOIN, BACKWARD_OF_SPLIT = r"^CatBackward\d?$", r"^Split(?:WithSizes)?Backward\d?$"


def infer_joined_shapes(ops: pl.DataFrame) -> dict[int, list[int]]:
    """Infer the shape of each concatenation's result, or a vector of as many elements; return it by the op's row.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    rows = ops.with_row_index("row").filter(pl.col("input_dims").is_not_null())
    joins = rows.filter(pl.col("name").str.contains(JOIN_OP) & pl.col("input_dims").str.starts_with(UNRECORDED))
    if joins.is_empty():
        return {}
    return _infer_from_split(joins, rows) | _infer_from_gradient(joins, rows)


def _infer_from_gradient(joins: pl.DataFrame, rows: pl.DataFrame) -> dict[int, list[int]]:
    backward = rows.filter(pl.col("name").str.contains(BACKWARD_OF_JOIN)).drop_nulls("sequence")
    told = backward.unique("sequence", keep="none").select("sequence", gradient="input_dims")
    # An op without a backward pass has the number of the next one that has one.
    own = joins.sort("ts_ns").unique("sequence", keep="last")
    pairs = own.join(told, on="sequence").select("row", "gradient").iter_rows()
    shapes = ((row, _parse_tensors(gradient)) for row, gradient in pairs)
    return {row: tensors[0] for row, tensors in shapes if len(tensors) == 1}


def _infer_from_split(joins: pl.DataFrame, rows: pl.DataFrame) -> dict[int, list[int]]:
    splits = rows.filter(pl.col("name").str.contains(BACKWARD_OF_SPLIT))
    if splits.is_empty():
        return {}
    inside = splits["input_dims"].gather(find_innermost_ops(joins, splits))
    parts = {dims: _parse_tensors(dims) for dims in inside.drop_nulls().unique()}
    known = {dims: [sum(map(math.prod, tensors))] for dims, tensors in parts.items() if tensors}
    return {row: known[dims] for row, dims in zip(joins["row"], inside, strict=True) if dims in known}


def _parse_tensors(dims: str) -> list[list[int]]:
    """Parse the shapes of an op's inputs, flattening lists of tensors."""
    found: list[list[int]] = []
    for shape in json.loads(dims):
        if shape and isinstance(shape[0], int):
            found.append(shape)
        elif shape:
            found.extend(one for one in shape if one)
    return found
