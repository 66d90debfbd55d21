"""Compute the work of convolutions as implicit GEMMs; ``batch`` is the number of groups.

    forward   m = N P Q    n = K / g          k = C/g R S
    dgrad     m = N P Q    n = C/g R S        k = K / g
    wgrad     m = K / g    n = C/g R S        k = N P Q

for input [N, C, ...], weight [K, C/g, R, S], output [N, K, P, Q]. Each has the multiply-adds of the forward pass.
"""

import math
import re
from typing import NamedTuple

from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.ops.registry import op
from tracekit.workload.signature import ITEM_BYTES, Signature, Tensor

Shape = tuple[int, ...]
_WindowParameters = tuple[list[int], list[int], list[int]]

GROUPS_POSITION = {
    "aten::convolution": 8,
    "aten::_convolution": 8,
    "aten::convolution_overrideable": 8,
    "aten::cudnn_convolution_transpose": 6,
    "aten::miopen_convolution_transpose": 7,
}
"""Position of the number of groups, for ops that may be transposed."""
WEIGHT_GRADIENT_KERNEL = re.compile(r"wgrad|wrw|(?:bwd|backward|grad)_?weight", re.IGNORECASE)
WINOGRAD_WINDOWS = ((3, 3), (5, 5))
"""Windows for which cuDNN has Winograd's algorithm at stride 1: 3×3 take at least 2.25 times fewer multiplications
(Lavin and Gray, arXiv:1509.09308)."""
ALWAYS_TRANSPOSED = -1
"""Value of ``transposed`` for ops that are always transposed."""


class _ConvArguments(NamedTuple):
    """Argument positions of an op that takes input and weight first."""

    stride: int
    padding: int
    dilation: int
    transposed: int | None = None


_MIOPEN_ARGUMENTS = _ConvArguments(stride=4, padding=3, dilation=5)
_FUSED_ARGUMENTS = _ConvArguments(stride=3, padding=4, dilation=5)
_SLOW_ARGUMENTS = _ConvArguments(stride=4, padding=5, dilation=-1)
_ATEN_ARGUMENTS = _ConvArguments(stride=3, padding=4, dilation=5, transposed=6)
_DEPTHWISE_ARGUMENTS = _ConvArguments(stride=4, padding=5, dilation=6)

FORWARD_ARGUMENTS: dict[str, _ConvArguments] = {
    "aten::cudnn_convolution": _ConvArguments(stride=3, padding=2, dilation=4),
    "aten::cudnn_convolution_relu": _FUSED_ARGUMENTS,
    "aten::cudnn_convolution_add_relu": _ConvArguments(stride=5, padding=6, dilation=7),
    "aten::cudnn_convolution_transpose": _ConvArguments(stride=4, padding=2, dilation=5, transposed=ALWAYS_TRANSPOSED),
    "aten::miopen_convolution": _MIOPEN_ARGUMENTS,
    "aten::miopen_convolution_transpose": _ConvArguments(stride=5, padding=3, dilation=6, transposed=ALWAYS_TRANSPOSED),
    "aten::miopen_depthwise_convolution": _MIOPEN_ARGUMENTS,
    "aten::miopen_convolution_relu": _FUSED_ARGUMENTS,
    "aten::mkldnn_convolution": _MIOPEN_ARGUMENTS,
    "aten::thnn_conv2d_forward": _SLOW_ARGUMENTS,
    "aten::_slow_conv2d_forward": _SLOW_ARGUMENTS,
    "aten::_convolution": _ATEN_ARGUMENTS,
    "aten::convolution": _ATEN_ARGUMENTS,
    "aten::convolution_overrideable": _ATEN_ARGUMENTS,
    "aten::_conv_depthwise2d": _DEPTHWISE_ARGUMENTS,
    "aten::conv_depthwise3d": _DEPTHWISE_ARGUMENTS,
}


@op(*FORWARD_ARGUMENTS, family="conv")
def _compute_forward(signature: Signature) -> Columns | None:
    factors, y = _get_operands(signature), infer_output_shape(signature)
    if factors is None:
        return None
    x, w = factors
    if _is_transposed(signature):
        # Input and output swap: a transposed convolution is the dgrad of a convolution that shrinks the image.
        columns = _build_implicit_gemm(signature, y=x, w=w, x=y or x)
        return {**columns, "channels": w[0] // _count_groups(signature, w)}
    return None if y is None else _build_implicit_gemm(signature, y=y, w=w, x=x)


def infer_output_shape(signature: Signature) -> Shape | None:
    """Infer the shape [N, K, ...] of a forward convolution's result; ``None`` if its arguments aren't enough."""
    factors, places = _get_operands(signature), FORWARD_ARGUMENTS[signature.op]
    if factors is None:
        return None
    x, w = factors
    windows = _parse_windows(signature, places, len(x) - 2)
    if _is_transposed(signature):
        return _compute_transposed_shape(x, w, _count_groups(signature, w), windows) if windows else None
    told = signature.output if len(signature.output or ()) == len(x) else None
    return (_compute_output_shape(x, w, windows) if windows else None) or told


def _get_operands(signature: Signature) -> tuple[Shape, Shape] | None:
    """Return the shapes of input and weight."""
    x, w = signature.get_shape(0), signature.get_shape(1)
    return (x, w) if x and w and len(x) == len(w) > 2 else None


def _is_transposed(signature: Signature) -> bool:
    place = FORWARD_ARGUMENTS[signature.op].transposed
    return place == ALWAYS_TRANSPOSED or (place is not None and bool(signature.get_value(place)))


def _parse_windows(signature: Signature, places: _ConvArguments, axes: int) -> _WindowParameters | None:
    """Parse stride, padding and dilation along each axis; ``None`` if they weren't recorded."""
    stride, padding, dilation = (_parse_per_axis(signature, place, axes) for place in places[:3])
    if stride is None or padding is None or min(stride) < 1:
        return None
    return stride, padding, dilation or [1] * axes


def _compute_output_shape(x: Shape, w: Shape, windows: _WindowParameters) -> Shape | None:
    """Compute the output shape [N, K, ...] of a convolution; ``None`` if its arguments are impossible."""
    s, p, d = windows
    sizes = [
        (size + 2 * p[i] - d[i] * (kernel - 1) - 1) // s[i] + 1
        for i, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True))
    ]
    return (x[0], w[0], *sizes) if all(size > 0 for size in sizes) else None


def _compute_transposed_shape(x: Shape, w: Shape, groups: int, windows: _WindowParameters) -> Shape:
    """Compute the output shape [N, K, ...] of a transposed convolution without ``output_padding``."""
    s, p, d = windows
    sizes = [
        (size - 1) * s[i] - 2 * p[i] + d[i] * (kernel - 1) + 1
        for i, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True))
    ]
    return (x[0], w[1] * groups, *(max(size, 1) for size in sizes))


def _parse_per_axis(signature: Signature, place: int, axes: int) -> list[int] | None:
    """Parse the numbers at ``place``; a single number applies to all axes."""
    one = signature.get_integer(place)
    values = signature.get_integers(place) if one is None else [one]
    if values is None or len(values) not in (1, axes):
        return None
    return values * axes if len(values) == 1 else values


def _build_implicit_gemm(signature: Signature, y: Shape, w: Shape, x: Shape) -> Columns:
    groups = _count_groups(signature, w)
    return {
        "batch": groups,
        "m": y[0] * math.prod(y[2:]),
        "n": max(w[0] // groups, 1),
        "k": math.prod(w[1:]),
        "bytes": _get_item_bytes(signature) * (math.prod(x) + math.prod(w) + math.prod(y)),
        "direction": "forward",
        "winograd": _has_winograd(x, y, w),
        "channels": w[1],
        "channels_first": _lies_by_channel(signature.get_tensor(0)),
        **_build_image_columns(y),
    }


def _lies_by_channel(image: Tensor | None) -> bool | None:
    """Return whether an image lies channel after channel; None where its strides weren't recorded."""
    return image.strides[1] != 1 if image and len(image.strides) > 1 else None


def _build_image_columns(y: Shape) -> Columns:
    """Build the columns for rows and columns of a two-dimensional convolution's output."""
    return {"height": y[2], "width": y[3]} if len(y) == 4 else {}


def _has_winograd(x: Shape, y: Shape, w: Shape) -> bool:
    """Return whether Winograd's algorithm applies: at stride 1 the image shrinks by less than the window."""
    near = (abs(before - after) < side for before, after, side in zip(x[2:], y[2:], w[2:], strict=True))
    return w[2:] in WINOGRAD_WINDOWS and all(near)


def _count_groups(signature: Signature, w: Shape) -> int:
    """Return the recorded groups; a transposed convolution's shapes, with weight [C, K/g, ...], don't give them."""
    x, recorded = signature.get_shape(0) or (), signature.get_integer(GROUPS_POSITION.get(signature.op, -1))
    return recorded or max(x[1] // max(w[1], 1), 1)


def _get_item_bytes(signature: Signature) -> int:
    return ITEM_BYTES[signature.dtype or "fp32"]


@op("aten::convolution_backward", family="conv")
def _compute_backward(signature: Signature) -> Columns | None:
    """Compute the data gradient from grad_output, input, weight, or the weight gradient if only that is wanted."""
    dy, x, w = (signature.get_shape(index) for index in range(3))
    columns = _build_data_gradient(
        signature, dy, x, w, transposed=bool(signature.get_value(7)), groups=signature.get_integer(9)
    )
    wanted = signature.get_value(10)
    weight_only = isinstance(wanted, list) and wanted[:2] == [False, True]
    return convert_to_weight_gradient(columns) if columns and weight_only else columns


@op("aten::cudnn_convolution_backward", "aten::miopen_convolution_backward", family="conv")
def _compute_library_backward(signature: Signature) -> Columns | None:
    """Compute the data gradient of a library's backward op (PyTorch up to 1.10): input, grad_output, weight."""
    x, dy, w = (signature.get_shape(index) for index in range(3))
    return _build_data_gradient(signature, dy, x, w)


@op("aten::cudnn_convolution_backward_input", "aten::miopen_convolution_backward_input", family="conv")
def _compute_input_gradient(signature: Signature) -> Columns | None:
    """Compute the data gradient from input_size, grad_output, weight."""
    return _build_data_gradient(signature, signature.get_shape(1), signature.output, signature.get_shape(2))


@op("aten::cudnn_convolution_backward_weight", "aten::miopen_convolution_backward_weight", family="conv")
def _compute_weight_gradient(signature: Signature) -> Columns | None:
    """Compute the weight gradient from weight_size, grad_output, input."""
    columns = _build_data_gradient(signature, signature.get_shape(1), signature.get_shape(2), signature.output)
    return None if columns is None else convert_to_weight_gradient(columns)


def _build_data_gradient(
    signature: Signature,
    dy: Shape | None,
    x: Shape | None,
    w: Shape | None,
    transposed: bool = False,
    groups: int | None = None,
) -> Columns | None:
    if dy is None or x is None or w is None or len(w) < 3 or not len(dy) == len(x) == len(w):
        return None
    groups = groups or max(x[1] // max(w[1], 1), 1)
    smaller = x if transposed else dy
    return {
        "batch": groups,
        "m": smaller[0] * math.prod(smaller[2:]),
        "n": math.prod(w[1:]),
        "k": max(w[0] // groups, 1),
        "bytes": _get_item_bytes(signature) * (math.prod(dy) + math.prod(x) + math.prod(w)),
        "direction": "dgrad",
        "winograd": _has_winograd(x, dy, w),
        "channels": w[1],
        "channels_first": _lies_by_channel(signature.get_tensor(1)),
        **_build_image_columns(smaller),
    }


def convert_to_weight_gradient(columns: Columns) -> Columns:
    """Convert the columns of a convolution's data gradient to those of its weight gradient."""
    return {**columns, "m": columns["k"], "k": columns["m"], "direction": "wgrad"}


def is_weight_gradient(kernel: str) -> bool:
    """Return whether a kernel's name has the word for a weight gradient (MIOpen calls it wrw)."""
    return WEIGHT_GRADIENT_KERNEL.search(kernel) is not None
