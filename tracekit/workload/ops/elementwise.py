"""Compute the traffic of elementwise ops: the inputs are broadcast, one output has the broadcast shape."""

import math
from collections.abc import Iterable

from tracekit.workload.ops.memory_traffic import (
    Columns,
    TrafficFormula,
    build_traffic_columns,
    make_single_pass,
    sum_bytes,
)
from tracekit.workload.signature import INTEGER_DTYPES, Signature, Tensor

WRITE_ONLY_OPS = (
    "aten::arange", "aten::bernoulli_", "aten::eye", "aten::exponential_", "aten::fill_", "aten::full",
    "aten::normal_", "aten::ones", "aten::ones_like", "aten::random_", "aten::uniform_", "aten::zero_", "aten::zeros",
    "aten::zeros_like",
)  # fmt: skip
BOOL_OPS = (
    "aten::eq", "aten::ge", "aten::gt", "aten::isfinite", "aten::isinf", "aten::isnan", "aten::le", "aten::logical_and",
    "aten::logical_not", "aten::logical_or", "aten::logical_xor", "aten::lt", "aten::ne",
)  # fmt: skip

# Number of arguments of an op without ``out``, by PyTorch's native_functions.yaml. One more is the output.
ARGUMENT_COUNTS = {
    1: (
        "abs", "acos", "asin", "atan", "bitwise_not", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp", "exp2",
        "expm1", "floor", "frac", "hardsigmoid", "hardswish", "lgamma", "log", "log10", "log1p", "log2", "logical_not",
        "mish", "neg", "reciprocal", "relu", "rsqrt", "sgn", "sigmoid", "sign", "silu", "sin", "sinh", "sqrt", "square",
        "tan", "tanh", "trunc",
    ),
    2: (
        "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "clamp_max", "clamp_min", "copysign", "div", "eq",
        "floor_divide", "fmax", "fmin", "fmod", "ge", "gelu", "gt", "hardswish_backward", "le", "leaky_relu",
        "logical_and", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "ne", "pow", "remainder",
        "sigmoid_backward", "silu_backward", "tanh_backward",
    ),
    3: ("add", "clamp", "gelu_backward", "lerp", "rsub", "sub", "threshold", "threshold_backward", "where"),
    4: ("addcdiv", "addcmul", "leaky_relu_backward", "nan_to_num"),
}  # fmt: skip
OUTPUTS = 1
"""Most tensors of an op behind its arguments."""
touch_all = make_single_pass(flops_per_element=1)
_ARGUMENT_COUNTS = {f"aten::{op}": count for count, ops in ARGUMENT_COUNTS.items() for op in ops}

# The last argument of these is a number. If a tensor follows it, that is the output; before 2021 the output came first.
SCALED_OPS = ("aten::add", "aten::addcdiv", "aten::addcmul", "aten::rsub", "aten::sub")


def compute_traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the traffic of an elementwise op: inputs read once, the output written once."""
    if len(signature.dims) > _ARGUMENT_COUNTS.get(signature.op, len(signature.dims)) + OUTPUTS:
        return touch_all(signature, item_bytes)  # arguments of another op than the name says
    tensors = _get_inputs(signature)
    if not tensors:
        return None
    shape = broadcast_shapes(tensor.shape for tensor in tensors)
    numel = math.prod(shape)
    written = numel * (1 if signature.op in BOOL_OPS else _compute_promoted_bytes(tensors, item_bytes))
    read = 0 if signature.op in WRITE_ONLY_OPS else sum_bytes(tensors, item_bytes)
    return build_traffic_columns(shape, flops=numel, bytes_=read + written)


def _compute_promoted_bytes(tensors: list[Tensor], item_bytes: int) -> int:
    """Compute the result's bytes per element: scalars don't widen the other types, integers don't widen floats."""
    sized = [tensor for tensor in tensors if tensor.shape] or tensors
    return max(
        tensor.get_item_bytes(item_bytes) for tensor in ([t for t in sized if t.dtype not in INTEGER_DTYPES] or sized)
    )


def _get_inputs(signature: Signature) -> list[Tensor]:
    recorded = len(signature.dims)
    arguments = min(_ARGUMENT_COUNTS.get(signature.op, recorded), recorded)
    last = signature.get_tensors(recorded - 1) if recorded > arguments else ()
    output_first = signature.op in SCALED_OPS and recorded > arguments and not any(tensor.shape for tensor in last)
    return [
        tensor for index in range(output_first, arguments + output_first) for tensor in signature.get_tensors(index)
    ]


def broadcast_shapes(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to."""
    known = list(shapes)
    rank = max(len(shape) for shape in known)
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def _compute_dropout(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute dropout: reads the input, writes the output and a mask of one byte per element."""
    tensor = signature.get_tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.compute_bytes(item_bytes) + tensor.numel * (tensor.get_item_bytes(item_bytes) + 1)
    return build_traffic_columns(tensor.shape, flops=2 * tensor.numel, bytes_=bytes_)


def _compute_dropout_backward(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute dropout's backward pass: reads the gradient and a mask of one byte per element, writes a gradient."""
    tensor = next(iter(signature.get_tensors(0)), None)
    if tensor is None:
        return None
    bytes_ = tensor.numel * (2 * tensor.get_item_bytes(item_bytes) + 1)
    return build_traffic_columns(tensor.shape, flops=tensor.numel, bytes_=bytes_)


def _compute_gated_unit(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a gated unit: the input holds gate and value side by side."""
    tensor = signature.get_tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.compute_bytes(item_bytes) + tensor.numel // 2 * tensor.get_item_bytes(item_bytes)
    return build_traffic_columns(tensor.shape, flops=tensor.numel, bytes_=bytes_)


TRAFFIC: dict[str, TrafficFormula] = {
    "aten::native_dropout": _compute_dropout,
    "aten::_fused_dropout": _compute_dropout,
    "aten::_masked_scale": _compute_dropout_backward,
    "aten::native_dropout_backward": _compute_dropout_backward,
    "aten::glu": _compute_gated_unit,
}
