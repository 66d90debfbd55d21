"""Rewrite the CPU's attention ops into those of CUDA, whose inputs native_functions.yaml declares."""

import math
from collections.abc import Sequence
from dataclasses import replace

from sample_traces.synthetic import dense
from sample_traces.synthetic.ops import NONE, Input, Op, call, number, numbers, tensor

FLOAT, BFLOAT16, UINT64 = 6, 15, 28  # Codes of the types in concrete inputs.


def forward(op: Op) -> Op:
    """Return the forward op; the one inside it takes tokens before heads and launches the kernel."""
    query, key, value = (tensor(op, index) for index in range(3))
    batch, heads, tokens, width = query.dims
    rows = [_transposed(part) for part in (query, key, value)]
    options = [number("0."), number(True), number(False), number(width**-0.5)]
    inner = call(
        "aten::_flash_attention_forward",
        [*rows, NONE, NONE, number(tokens), number(tokens), *options, *[NONE] * 6],
        _empty_like(rows[0]),
        _empty((batch, heads, tokens), FLOAT),
        _empty((2,), UINT64),
        _empty((), UINT64),
    )
    outer = call(
        "aten::_scaled_dot_product_flash_attention",
        [query, key, value, *options],
        *(_transpose(part) for part in (query, key, value)),
        replace(inner, kernels=dense.flash_forward(inner)),
        _transpose(rows[0]),
    )
    return replace(outer, args=op.args | outer.args)


def backward(op: Op) -> Op:
    """Return the backward op; the one inside it takes tokens before heads and launches the kernels."""
    inputs = [tensor(op, index) for index in range(5)]
    batch, heads, tokens, width = inputs[1].dims
    rows = [_transposed(part) for part in inputs]
    padded = 128 * math.ceil(tokens / 128)
    options = [
        Input("float", (batch, heads, tokens), (heads * tokens, tokens, 1)),
        *[NONE, NONE, number(tokens), number(tokens), number("0."), number(True)],
        *[Input("unsigned long", (2,), (1,)), Input("unsigned long"), number(width**-0.5)],
    ]
    inner = call(
        "aten::_flash_attention_backward",
        [*rows, *options, NONE, NONE],
        *(_empty_like(part) for part in rows[1:4]),
        _empty((batch, heads, padded), FLOAT),
        _empty((batch, padded, heads, width), FLOAT),
    )
    outer = call(
        "aten::_scaled_dot_product_flash_attention_backward",
        [*inputs, *options],
        *(_transpose(part) for part in inputs),
        replace(inner, kernels=dense.flash_backward(inner)),
        *(_transpose(part) for part in rows[1:4]),
    )
    return replace(outer, args=op.args | outer.args)


def _transposed(given: Input) -> Input:
    """Exchange heads and tokens."""
    (batch, heads, tokens, width), strides = given.dims, given.strides
    return replace(
        given,
        dims=(batch, tokens, heads, width),
        strides=(strides[0], strides[2], strides[1], strides[3]),
    )


def _transpose(given: Input) -> Op:
    result = _transposed(given)
    view = call("aten::as_strided", [given, numbers(result.dims), numbers(result.strides), NONE])
    return call("aten::transpose", [given, number(1), number(2)], view)


def _empty(dims: Sequence[int], dtype: int) -> Op:
    return call("aten::empty", [numbers(dims), number(dtype), number(0), NONE, NONE, NONE])


def _empty_like(given: Input) -> Op:
    strided = call(
        "aten::empty_strided",
        [numbers(given.dims), numbers(given.strides), number(BFLOAT16), number(0), NONE, NONE],
    )
    return call("aten::empty_like", [given, *[NONE] * 5], strided)
