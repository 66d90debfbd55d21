"""Compute the traffic of elementwise ops: the inputs are broadcast, one output has the broadcast shape."""

import math
from collections.abc import Iterable

from tracekit.workload.ops.memory_traffic import (
    Columns,
    TrafficFormula,
    build_traffic_columns,
    make_read_write,
    make_single_pass,
    sum_bytes,
)
from tracekit.workload.ops.registry import op, other_ops_of
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


@other_ops_of("elementwise")
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


@op("aten::native_dropout", "aten::_fused_dropout", family="elementwise")
def _compute_dropout(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute dropout: reads the input, writes the output and a mask of one byte per element."""
    tensor = signature.get_tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.compute_bytes(item_bytes) + tensor.numel * (tensor.get_item_bytes(item_bytes) + 1)
    return build_traffic_columns(tensor.shape, flops=2 * tensor.numel, bytes_=bytes_)


@op("aten::_masked_scale", "aten::native_dropout_backward", family="elementwise")
def _compute_dropout_backward(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute dropout's backward pass: reads the gradient and a mask of one byte per element, writes a gradient."""
    tensor = next(iter(signature.get_tensors(0)), None)
    if tensor is None:
        return None
    bytes_ = tensor.numel * (2 * tensor.get_item_bytes(item_bytes) + 1)
    return build_traffic_columns(tensor.shape, flops=tensor.numel, bytes_=bytes_)


@op("aten::glu", family="elementwise")
def _compute_gated_unit(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a gated unit: the input holds gate and value side by side."""
    tensor = signature.get_tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.compute_bytes(item_bytes) + tensor.numel // 2 * tensor.get_item_bytes(item_bytes)
    return build_traffic_columns(tensor.shape, flops=tensor.numel, bytes_=bytes_)


op(
    "_C::silu_and_mul_quant", "_C::silu_and_mul_per_block_quant", "_C::mul_and_silu", "_C::gelu_tanh_and_mul",
    "_C::fatrelu_and_mul", "_C::swigluoai_and_mul", "_C::gelu_new", "_C::gelu_fast", "_C::gelu_quick",
    "aiter::silu_and_mul", family="elementwise",
)(make_single_pass(5))  # fmt: skip
op(
    "_C::static_scaled_int8_quant", "_C::dynamic_scaled_int8_quant", "_C::per_token_group_fp8_quant",
    "_C::per_token_group_quant_int8", "_C::scaled_fp4_quant", "sgl_kernel::scaled_fp4_quant",
    "sgl_kernel::sgl_per_token_group_quant_fp8", "sgl_kernel::sgl_per_token_group_quant_int8",
    "sgl_kernel::sgl_per_tensor_quant_fp8", "sgl_kernel::sgl_per_token_quant_fp8", "_moe_C::moe_sum",
    family="elementwise",
)(make_single_pass(2))  # fmt: skip
op("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", family="elementwise")(
    make_read_write(both=(), read=(0, 1), write=(2, 3))
)


def _make_cast(bytes_per_element: float) -> TrafficFormula:
    """Make the formula of a cast: the input read, as many narrow elements written."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        x = signature.get_tensors(0)
        if not x:
            return None
        bytes_ = x[0].compute_bytes(item_bytes) + round(x[0].numel * bytes_per_element)
        return build_traffic_columns(x[0].shape, flops=x[0].numel, bytes_=bytes_)

    return columns


@op("tracekit::quantise", family="elementwise")
def _compute_quantise(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a captured cast of an input, with the bytes that are read and written for each element."""
    del item_bytes
    x, read, written = signature.get_tensor(0), signature.get_value(1), signature.get_value(2)
    if x is None or not isinstance(read, int | float) or not isinstance(written, int | float):
        return None
    return build_traffic_columns(x.shape, flops=x.numel, bytes_=round(x.numel * (read + written)))


def _make_cast_back(*, shape: int | None = None) -> TrafficFormula:
    """Make the formula of a cast back to the kernel's type: all inputs read, the result written.

    The result has as many elements as the first input, or the shape at ``shape``.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        x, sizes = signature.get_tensors(0), None if shape is None else signature.get_integers(shape)
        if not x or (shape is not None and sizes is None):
            return None
        wide = x[0].shape if sizes is None else tuple(sizes)
        written = math.prod(wide) * item_bytes
        return build_traffic_columns(
            wide, flops=math.prod(wide), bytes_=sum_bytes(signature.tensors, item_bytes) + written
        )

    return columns


op(
    "_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant", "_C::dynamic_per_token_scaled_fp8_quant",
    family="elementwise",
)(make_single_pass(2))  # fmt: skip
op("_C::silu_and_mul", "sgl_kernel::silu_and_mul", family="elementwise")(make_single_pass(5))
op("_C::gelu_and_mul", "sgl_kernel::gelu_and_mul", "sgl_kernel::gelu_tanh_and_mul", family="elementwise")(
    make_single_pass(10)
)
op("bitsandbytes::int8_vectorwise_quant", "bitsandbytes::quantize_blockwise", family="elementwise")(_make_cast(1))
op("bitsandbytes::quantize_4bit", family="elementwise")(_make_cast(0.5))
op("bitsandbytes::int8_mm_dequant", "bitsandbytes::dequantize_blockwise", family="elementwise")(_make_cast_back())
op("bitsandbytes::dequantize_4bit", family="elementwise")(_make_cast_back(shape=4))
op("bitsandbytes::optimizer_update_32bit", family="optimizer")(make_read_write(both=(2, 3, 4), read=(1,)))
# Behind the states, and tables of what their codes stand for, come a scale for each of their blocks.
op("bitsandbytes::optimizer_update_8bit_blockwise", family="optimizer")(
    make_read_write(both=(2, 3, 4, 14, 15), read=(1, 12, 13))
)


FLOPS_PER_LEVEL = 5
"""FLOPs per element and level of a complex transform; a real one needs half (http://www.fftw.org/speed/method.html)."""

COMPLEX_BYTES = {"fp16": 4, "fp32": 8, "fp64": 16}
"""Bytes of a complex number by the precision of its parts."""


@op("aten::_fft_c2c", family="elementwise")
def _compute_complex(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a complex transform of input and axes; the output has the input's shape."""
    x, axes = signature.get_tensor(0), _parse_axes(signature)
    if x is None or axes is None:
        return None
    bytes_ = 2 * x.numel * x.get_item_bytes(2 * item_bytes)
    return _build_columns(x.shape, axes, FLOPS_PER_LEVEL, bytes_)


@op("aten::_fft_r2c", family="elementwise")
def _compute_from_real(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a transform of real input, axes, normalisation, and whether to write only half of the last axis.

    The other half is redundant, as the output is symmetric.
    """
    x, axes = signature.get_tensor(0), _parse_axes(signature)
    if x is None or not axes:
        return None
    last = max(x.shape[axes[-1]], 1)
    written = x.numel // last * (last // 2 + 1) if signature.get_value(3) else x.numel
    narrow = x.get_item_bytes(item_bytes)
    bytes_ = x.numel * narrow + written * COMPLEX_BYTES.get(x.dtype or "", 2 * narrow)
    return _build_columns(x.shape, axes, FLOPS_PER_LEVEL / 2, bytes_)


@op("aten::_fft_c2r", family="elementwise")
def _compute_to_real(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a transform to real numbers from input, axes, normalisation, and the length of the output's last axis."""
    x, axes, last = signature.get_tensor(0), _parse_axes(signature), signature.get_integer(3)
    if x is None or not axes or last is None:
        return None
    shape = list(x.shape)
    shape[axes[-1]] = last
    wide = x.get_item_bytes(2 * item_bytes)
    return _build_columns(tuple(shape), axes, FLOPS_PER_LEVEL / 2, x.numel * wide + math.prod(shape) * wide // 2)


def _parse_axes(signature: Signature) -> list[int] | None:
    """Parse the axes of the transform; ``None`` if they weren't recorded, or the input has no such axis."""
    axes, sides = signature.get_integers(1), len(signature.get_shape(0) or ())
    return axes if axes is not None and all(-sides <= axis < sides for axis in axes) else None


def _build_columns(shape: tuple[int, ...], axes: list[int], flops: float, bytes_: int) -> Columns:
    length = math.prod(shape[axis] for axis in axes)
    return build_traffic_columns(
        shape, flops=round(flops * math.prod(shape) * math.log2(max(length, 1))), bytes_=bytes_
    )


NEIGHBOURS_PER_AXIS: dict[int | None, int] = {0: 2, 1: 1, 2: 4}
"""Neighbours along each axis, by interpolation_mode: linear, nearest, cubic."""


def _make_grid_sampler(*, x: int = 0, grid: int = 1, mode: int | None = 2, dy: int | None = None) -> TrafficFormula:
    """Make the formula of an op from the positions of its arguments.

    Args:
        x: Position of the input.
        grid: Position of the points.
        mode: Position of the interpolation mode; linear if the op has none.
        dy: Position of the output's gradient in a backward op, whose last argument says which gradients are wanted.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        source, points = signature.get_tensors(x), signature.get_tensors(grid)
        along = NEIGHBOURS_PER_AXIS.get(0 if mode is None else signature.get_integer(mode))
        if not source or not points or along is None:
            return None
        size, corners = source[0].get_item_bytes(item_bytes), along ** (len(source[0].shape) - 2)
        shape = (*source[0].shape[:2], *points[0].shape[1:-1])
        read = min(source[0].numel, corners * math.prod(shape)) * size + points[0].compute_bytes(item_bytes)
        flops, moved = 2 * corners * math.prod(shape), math.prod(shape) * size
        if dy is not None:
            wanted = signature.get_value(len(signature.dims) - 1)
            both = wanted if wanted in ([True, False], [False, True]) else [True, True]
            flops *= sum(both)
            moved += both[0] * source[0].numel * size + both[1] * points[0].compute_bytes(item_bytes)
            read -= 0 if both[1] else min(source[0].numel, corners * math.prod(shape)) * size
        return build_traffic_columns(shape, flops=flops, bytes_=read + moved)

    return columns


op("aten::grid_sampler_2d", "aten::grid_sampler_3d", family="elementwise")(_make_grid_sampler())
op("aten::cudnn_grid_sampler", family="elementwise")(_make_grid_sampler(mode=None))
op("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", family="elementwise")(
    _make_grid_sampler(x=1, grid=2, mode=3, dy=0)
)
op("aten::cudnn_grid_sampler_backward", family="elementwise")(_make_grid_sampler(mode=None, dy=2))
