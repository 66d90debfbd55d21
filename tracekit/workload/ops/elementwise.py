"""Elementwise ops: inputs broadcast against each other, one output of the broadcast shape."""

import math
from collections.abc import Iterable

from tracekit.workload.ops.vector import Columns, Traffic, columns_of, size_of
from tracekit.workload.signature import WHOLE, Signature, Tensor

WRITES_ONLY = (
    "aten::arange", "aten::bernoulli_", "aten::eye", "aten::exponential_", "aten::fill_", "aten::full",
    "aten::normal_", "aten::ones", "aten::ones_like", "aten::random_", "aten::uniform_", "aten::zero_", "aten::zeros",
    "aten::zeros_like",
)  # fmt: skip
TO_BOOL = (
    "aten::eq", "aten::ge", "aten::gt", "aten::isfinite", "aten::isinf", "aten::isnan", "aten::le", "aten::logical_and",
    "aten::logical_not", "aten::logical_or", "aten::logical_xor", "aten::lt", "aten::ne",
)  # fmt: skip

# How many arguments an op takes without ``out``, by PyTorch's native_functions.yaml. One more is the output.
ARGUMENTS = {
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
_ARGUMENTS = {f"aten::{op}": count for count, ops in ARGUMENTS.items() for op in ops}

# Their last argument is a number: where a tensor follows it, the output was recorded last, else, before 2021, first.
SCALED = ("aten::add", "aten::addcdiv", "aten::addcmul", "aten::rsub", "aten::sub")


def traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Inputs read once, the output written once."""
    tensors = _inputs(signature)
    if not tensors:
        return None
    shape = broadcast(tensor.shape for tensor in tensors)
    numel = math.prod(shape)
    written = numel * (1 if signature.op in TO_BOOL else _promoted_bytes(tensors, item_bytes))
    read = 0 if signature.op in WRITES_ONLY else size_of(tensors, item_bytes)
    return columns_of(shape, flops=numel, bytes_=read + written)


def _promoted_bytes(tensors: list[Tensor], item_bytes: int) -> int:
    """Bytes per element of the result: what has no axes doesn't widen the others, nor do whole numbers others."""
    sized = [tensor for tensor in tensors if tensor.shape] or tensors
    return max(tensor.item_bytes(item_bytes) for tensor in ([t for t in sized if t.dtype not in WHOLE] or sized))


def _inputs(signature: Signature) -> list[Tensor]:
    recorded = len(signature.dims)
    arguments = min(_ARGUMENTS.get(signature.op, recorded), recorded)
    last = signature.at(recorded - 1) if recorded > arguments else ()
    output_first = signature.op in SCALED and recorded > arguments and not any(tensor.shape for tensor in last)
    return [tensor for index in range(output_first, arguments + output_first) for tensor in signature.at(index)]


def broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    known = list(shapes)
    rank = max(len(shape) for shape in known)
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def _masked(signature: Signature, item_bytes: int) -> Columns | None:
    """Dropout: reads the input, writes the output and a mask of one byte per element."""
    tensor = signature.tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.size_bytes(item_bytes) + tensor.numel * (tensor.item_bytes(item_bytes) + 1)
    return columns_of(tensor.shape, flops=2 * tensor.numel, bytes_=bytes_)


def _masked_scale(signature: Signature, item_bytes: int) -> Columns | None:
    """Dropout's backward pass: reads the gradient and a mask of one byte per element, writes a gradient."""
    tensor = next(iter(signature.at(0)), None)
    if tensor is None:
        return None
    bytes_ = tensor.numel * (2 * tensor.item_bytes(item_bytes) + 1)
    return columns_of(tensor.shape, flops=tensor.numel, bytes_=bytes_)


def _half_out(signature: Signature, item_bytes: int) -> Columns | None:
    """A gated unit: the input holds gate and value side by side."""
    tensor = signature.tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.size_bytes(item_bytes) + tensor.numel // 2 * tensor.item_bytes(item_bytes)
    return columns_of(tensor.shape, flops=tensor.numel, bytes_=bytes_)


TRAFFIC: dict[str, Traffic] = {
    "aten::native_dropout": _masked,
    "aten::_fused_dropout": _masked,
    "aten::_masked_scale": _masked_scale,
    "aten::native_dropout_backward": _masked_scale,
    "aten::glu": _half_out,
}
