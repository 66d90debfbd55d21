"""Shapes of results that ops around a convolution tell.

Traces of 2020 and 2021 record no strides and no output size. What does: the gradient of the output that the backward
pass of the same layer takes, the whole backward op that calls the one for each gradient, or, in inference, the op that
takes the output next. FBGEMM's backward passes get what their look-up tells instead, mixtures of experts the result of
the activation between their two GEMMs. These cast their tokens themselves, too, which tells what they multiply.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from tracekit.workload.ops import fbgemm
from tracekit.workload.owners import innermost_ops
from tracekit.workload.signature import dtype_of

FORWARD = ("aten::cudnn_convolution", "aten::miopen_convolution", "aten::thnn_conv2d_forward")
INPUT_GRADIENT = ("aten::cudnn_convolution_backward_input", "aten::miopen_convolution_backward_input")
WEIGHT_GRADIENT = ("aten::cudnn_convolution_backward_weight", "aten::miopen_convolution_backward_weight")
BACKWARD = ("aten::cudnn_convolution_backward", "aten::miopen_convolution_backward")
"""Takes input, gradient of the output, weight."""

OPS_AHEAD = 40

EXPERTS = r"^vllm::moe_forward"
ACTIVATION = r"^_C::(?:silu|gelu|gelu_tanh|swigluoai)_and_mul$"
"""Takes its output [tokens x experts of each, width] first."""
QUANTISE = r"^(?:_C|sgl_kernel)::.*quant"
"""Takes what it reads and writes as inputs."""
QUANTISED = ("fp8", "int8")

Key = tuple[tuple[int, ...], tuple[int, ...]]


def infer(ops: pl.DataFrame) -> pl.Series:
    """The shape of each op's result as JSON, where an op around it tells; null elsewhere.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    bare = pl.col("concrete_inputs").is_null() & pl.col("input_dims").is_not_null()
    found: dict[int, list[int]] = {}
    gradients = ops.with_row_index("row").filter(pl.col("name").is_in([*INPUT_GRADIENT, *WEIGHT_GRADIENT]) & bare)
    forward = ops.with_row_index("row").filter(pl.col("name").is_in(FORWARD) & bare)
    if gradients.height + forward.height:
        found |= dict(_gradients(gradients, ops))
        found |= dict(_forward(forward, ops))
    found |= fbgemm.lookups(ops)
    found |= _activations(ops)
    return _column("output_dims", {row: json.dumps(shape) for row, shape in found.items()}, ops.height)


def _activations(ops: pl.DataFrame) -> dict[int, list[int]]:
    """Of each mixture of experts the result of the largest activation in it; shared experts' has a row a token only."""
    told = ((row, _shapes(dims, 1)) for row, dims in _in_experts(ops, ACTIVATION, "input_dims"))
    return dict(sorted((row, shape) for row, shapes in told for shape in shapes if len(shape) == 2))


def quantised(ops: pl.DataFrame) -> pl.Series:
    """To what each mixture of experts casts the operands of its GEMMs; null where it doesn't, and of other ops.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    taken = (
        (row, dtype)
        for row, types in _in_experts(ops, QUANTISE, "input_types")
        for dtype in QUANTISED
        if dtype in map(dtype_of, json.loads(types))
    )
    return _column("quantised", dict(taken), ops.height)


def _column(name: str, found: Mapping[int, str], height: int) -> pl.Series:
    """What was found of some rows; null elsewhere."""
    nothing = pl.Series(name, [None], dtype=pl.String).new_from_index(0, height)
    return nothing.scatter(list(found), list(found.values())) if found else nothing


def _in_experts(ops: pl.DataFrame, pattern: str, column: str) -> list[tuple[int, str]]:
    """Of the ops that a pattern names, the row of the mixture of experts that each is in, and what a column tells."""
    experts = ops.with_row_index("row").filter(pl.col("name").str.contains(EXPERTS))
    named = ops.filter(pl.col("name").str.contains(pattern), pl.col(column).is_not_null())
    if experts.is_empty() or named.is_empty():
        return []
    inside = experts["row"].gather(innermost_ops(named, experts))
    return [(row, told) for row, told in zip(inside, named[column], strict=True) if row is not None]


def _gradients(gradients: pl.DataFrame, ops: pl.DataFrame) -> Iterator[tuple[int, list[int]]]:
    """From the backward op around each: its input and its weight."""
    callers = ops.filter(pl.col("name").is_in(BACKWARD)).select("ts_ns", "pid", "tid", caller="input_dims")
    joined = gradients.sort("ts_ns").join_asof(
        callers.sort("ts_ns"), on="ts_ns", by=["pid", "tid"], check_sortedness=False
    )
    for row, name, caller in joined.select("row", "name", "caller").drop_nulls().iter_rows():
        shapes = _shapes(caller, 3)
        if shapes:
            yield row, shapes[0 if name in INPUT_GRADIENT else 2]


def _forward(forward: pl.DataFrame, ops: pl.DataFrame) -> Iterator[tuple[int, list[int]]]:
    """From the backward pass where one output shape fits, else from the next op that takes such a tensor."""
    gradient_of = _output_gradients(ops)
    for row, dims in forward.select("row", "input_dims").iter_rows():
        x, w = _shapes(dims, 2) or ([], [])
        if len(x) != len(w) or len(x) < 3:
            continue
        shapes = gradient_of.get((tuple(x), tuple(w)), set())
        shape = list(next(iter(shapes))) if len(shapes) == 1 else _next_taker(row, x, w, ops)
        if shape is not None:
            yield row, shape


def _output_gradients(ops: pl.DataFrame) -> dict[Key, set[tuple[int, ...]]]:
    shapes: dict[Key, set[tuple[int, ...]]] = {}
    for dims in ops.filter(pl.col("name").is_in(BACKWARD))["input_dims"].drop_nulls().unique():
        known = [tuple(shape) for shape in _shapes(dims, 3)]
        if known:
            x, dy, w = known
            shapes.setdefault((x, w), set()).add(dy)
    return shapes


def _shapes(dims: str, count: int) -> list[list[int]]:
    """The shapes of the first ``count`` inputs; none where one of them is no tensor."""
    shapes = json.loads(dims)[:count]
    known = len(shapes) == count and all(shape and isinstance(shape[0], int) for shape in shapes)
    return shapes if known else []


def _next_taker(row: int, x: list[int], w: list[int], ops: pl.DataFrame) -> list[int] | None:
    """The first tensor [N, K, ...] of the convolution's rank that an op after it on its thread takes."""
    thread = ops["tid"][row]
    ahead = ops.slice(row + 1, OPS_AHEAD).filter(pl.col("tid") == thread)["input_dims"].drop_nulls()
    taken = (shape for dims in ahead for shape in json.loads(dims))
    return next((shape for shape in taken if _is_output(shape, x, w)), None)


def _is_output(shape: Any, x: list[int], w: list[int]) -> bool:
    return isinstance(shape, list) and len(shape) == len(x) and shape[:2] == [x[0], w[0]]
