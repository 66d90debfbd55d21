"""Find what other calls tell of a call: inputs of a backward pass, shapes of results, parts of joined tensors."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from tracekit.arrays import has_name, list_distinct, make_nulls
from tracekit.workload.ops import fbgemm
from tracekit.workload.owners import find_innermost_ops
from tracekit.workload.signature import parse_cpp_dtype

BACKWARD_FUNCTION = r"^([A-Za-z_]\w*)Backward$"
FORWARD_COLUMNS = ("forward_dims", "forward_types", "forward_concrete")


def find_forward_inputs(ops: pl.DataFrame) -> pl.DataFrame:
    """Find the shapes, types and values of the forward call's inputs for each backward pass; null for all other ops.

    Returns:
        One row per op with the columns ``FORWARD_COLUMNS``, each as recorded.
    """
    if not has_name(ops, BACKWARD_FUNCTION):
        return pl.DataFrame([make_nulls(name, ops.height, pl.String) for name in FORWARD_COLUMNS])
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


JOIN_OP = r"^aten::_?cat$"
UNRECORDED = "[[],"
"""How the inputs begin of an op whose list of tensors has no sizes."""
BACKWARD_OF_JOIN, BACKWARD_OF_SPLIT = r"^CatBackward\d?$", r"^Split(?:WithSizes)?Backward\d?$"


def infer_joined_shapes(ops: pl.DataFrame) -> dict[int, list[int]]:
    """Infer the shape of each concatenation's result, or a vector of as many elements; return it by the op's row."""
    if not has_name(ops, JOIN_OP):
        return {}
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


FORWARD_OPS = ("aten::cudnn_convolution", "aten::miopen_convolution", "aten::thnn_conv2d_forward")
INPUT_GRADIENT_OPS = ("aten::cudnn_convolution_backward_input", "aten::miopen_convolution_backward_input")
WEIGHT_GRADIENT_OPS = ("aten::cudnn_convolution_backward_weight", "aten::miopen_convolution_backward_weight")
BACKWARD_OPS = ("aten::cudnn_convolution_backward", "aten::miopen_convolution_backward")
"""Ops that take input, gradient of the output, weight."""

MAX_OPS_AHEAD = 40

MOE_OP = r"^vllm::moe_forward"
ACTIVATION_OP = r"^_C::(?:silu|gelu|gelu_tanh|swigluoai)_and_mul$"
"""Op whose first input is its output, [tokens x experts per token, width]."""
QUANTISE_OP = r"^(?:_C|sgl_kernel)::.*quant"
"""Op that takes what it reads and writes as inputs."""
QUANTISED_DTYPES = ("fp8", "int8")

InputAndWeightShape = tuple[tuple[int, ...], tuple[int, ...]]


def infer_output_shapes(ops: pl.DataFrame) -> pl.Series:
    """Infer the shape of each op's result as JSON; null where no neighbouring op has it."""
    found: dict[int, list[int]] = {}
    if not {*FORWARD_OPS, *INPUT_GRADIENT_OPS, *WEIGHT_GRADIENT_OPS}.isdisjoint(list_distinct(ops["name"])):
        found |= _infer_convolution_shapes(ops)
    found |= fbgemm.match_lookups(ops)
    found |= _infer_moe_activations(ops)
    found |= infer_joined_shapes(ops)
    return _make_column("output_dims", {row: json.dumps(shape) for row, shape in found.items()}, ops.height)


def _infer_convolution_shapes(ops: pl.DataFrame) -> dict[int, list[int]]:
    bare = pl.col("concrete_inputs").is_null() & pl.col("input_dims").is_not_null()
    gradients = ops.with_row_index("row").filter(
        pl.col("name").is_in([*INPUT_GRADIENT_OPS, *WEIGHT_GRADIENT_OPS]) & bare
    )
    forward = ops.with_row_index("row").filter(pl.col("name").is_in(FORWARD_OPS) & bare)
    if gradients.is_empty() and forward.is_empty():
        return {}
    return dict(_infer_gradient_shapes(gradients, ops)) | dict(_infer_forward_shapes(forward, ops))


def _infer_moe_activations(ops: pl.DataFrame) -> dict[int, list[int]]:
    """Infer the result of each mixture of experts' largest activation.

    The activation of shared experts is smaller: it has only one row per token.
    """
    told = ((row, _parse_shapes(dims, 1)) for row, dims in _find_ops_in_moe(ops, ACTIVATION_OP, "input_dims"))
    return dict(sorted((row, shape) for row, shapes in told for shape in shapes if len(shape) == 2))


def infer_quantised_dtypes(ops: pl.DataFrame) -> pl.Series:
    """Infer the type to which each mixture of experts casts its GEMMs' operands; null without a cast."""
    taken = (
        (row, dtype)
        for row, types in _find_ops_in_moe(ops, QUANTISE_OP, "input_types")
        for dtype in QUANTISED_DTYPES
        if dtype in map(parse_cpp_dtype, json.loads(types))
    )
    return _make_column("quantised", dict(taken), ops.height)


def _make_column(name: str, found: Mapping[int, str], height: int) -> pl.Series:
    """Make a column from the values found for some rows; null elsewhere."""
    nothing = make_nulls(name, height, pl.String)
    return nothing.scatter(list(found), list(found.values())) if found else nothing


def _find_ops_in_moe(ops: pl.DataFrame, pattern: str, column: str) -> list[tuple[int, str]]:
    """Find the ops that match a pattern inside a mixture of experts; return the latter's row and a column's value."""
    if not has_name(ops, MOE_OP):
        return []
    experts = ops.with_row_index("row").filter(pl.col("name").str.contains(MOE_OP))
    named = ops.filter(pl.col("name").str.contains(pattern), pl.col(column).is_not_null())
    if experts.is_empty() or named.is_empty():
        return []
    inside = experts["row"].gather(find_innermost_ops(named, experts))
    return [(row, told) for row, told in zip(inside, named[column], strict=True) if row is not None]


def _infer_gradient_shapes(gradients: pl.DataFrame, ops: pl.DataFrame) -> Iterator[tuple[int, list[int]]]:
    """Infer shapes of gradients from the enclosing backward op: its input and its weight."""
    callers = ops.filter(pl.col("name").is_in(BACKWARD_OPS)).select("ts_ns", "pid", "tid", caller="input_dims")
    joined = gradients.sort("ts_ns").join_asof(
        callers.sort("ts_ns"), on="ts_ns", by=["pid", "tid"], check_sortedness=False
    )
    for row, name, caller in joined.select("row", "name", "caller").drop_nulls().iter_rows():
        shapes = _parse_shapes(caller, 3)
        if shapes:
            yield row, shapes[0 if name in INPUT_GRADIENT_OPS else 2]


def _infer_forward_shapes(forward: pl.DataFrame, ops: pl.DataFrame) -> Iterator[tuple[int, list[int]]]:
    """Infer outputs from the backward pass if only one shape fits, else from the next op that takes such a tensor."""
    gradient_of = _collect_output_gradients(ops)
    for row, dims in forward.select("row", "input_dims").iter_rows():
        x, w = _parse_shapes(dims, 2) or ([], [])
        if len(x) != len(w) or len(x) < 3:
            continue
        shapes = gradient_of.get((tuple(x), tuple(w)), set())
        shape = list(next(iter(shapes))) if len(shapes) == 1 else _find_next_consumer_shape(row, x, w, ops)
        if shape is not None:
            yield row, shape


def _collect_output_gradients(ops: pl.DataFrame) -> dict[InputAndWeightShape, set[tuple[int, ...]]]:
    shapes: dict[InputAndWeightShape, set[tuple[int, ...]]] = {}
    for dims in ops.filter(pl.col("name").is_in(BACKWARD_OPS))["input_dims"].drop_nulls().unique():
        known = [tuple(shape) for shape in _parse_shapes(dims, 3)]
        if known:
            x, dy, w = known
            shapes.setdefault((x, w), set()).add(dy)
    return shapes


def _parse_shapes(dims: str, count: int) -> list[list[int]]:
    """Parse the shapes of the first ``count`` inputs; return none if one of them is no tensor."""
    shapes = json.loads(dims)[:count]
    known = len(shapes) == count and all(shape and isinstance(shape[0], int) for shape in shapes)
    return shapes if known else []


def _find_next_consumer_shape(row: int, x: list[int], w: list[int], ops: pl.DataFrame) -> list[int] | None:
    """Find the first tensor [N, K, ...] of the convolution's rank that a later op on its thread takes."""
    thread = ops["tid"][row]
    ahead = ops.slice(row + 1, MAX_OPS_AHEAD).filter(pl.col("tid") == thread)["input_dims"].drop_nulls()
    taken = (shape for dims in ahead for shape in json.loads(dims))
    return next((shape for shape in taken if _is_output_shape(shape, x, w)), None)


def _is_output_shape(shape: Any, x: list[int], w: list[int]) -> bool:
    return isinstance(shape, list) and len(shape) == len(x) and shape[:2] == [x[0], w[0]]
