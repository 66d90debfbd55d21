"""Convolutions as implicit GEMMs, ``batch`` being the groups.

    forward   m = N P Q    n = K / g          k = C/g R S
    dgrad     m = N P Q    n = C/g R S        k = K / g
    wgrad     m = K / g    n = C/g R S        k = N P Q

for input [N, C, ...], weight [K, C/g, R, S], output [N, K, P, Q]. Each has the multiply-adds of the forward pass.
"""

import math
import re
from typing import NamedTuple

from tracekit.workload.ops.vector import Columns, Formula
from tracekit.workload.signature import ITEM_BYTES, Signature

Shape = tuple[int, ...]
_Windows = tuple[list[int], list[int], list[int]]

GROUPS = {
    "aten::convolution": 8,
    "aten::_convolution": 8,
    "aten::convolution_overrideable": 8,
    "aten::cudnn_convolution_transpose": 6,
    "aten::miopen_convolution_transpose": 7,
}
"""Where ops that may be transposed have their number of groups."""
WEIGHT_GRADIENT = re.compile(r"wgrad|wrw|(?:bwd|backward|grad)_?weight", re.IGNORECASE)
WINOGRAD = ((3, 3), (5, 5))
"""Windows for which cuDNN has Winograd's algorithm, at every pixel: 3×3 take 2.25 times fewer multiplications or more
(Lavin and Gray, arXiv:1509.09308)."""
ALWAYS = -1
"""As the position of the argument ``transposed``: the op knows no other kind."""


class _Places(NamedTuple):
    """Argument positions of an op that takes input and weight first."""

    stride: int
    padding: int
    dilation: int
    transposed: int | None = None


def _forward(signature: Signature) -> Columns | None:
    factors, y = _factors(signature), output_of(signature)
    if factors is None:
        return None
    x, w = factors
    if _is_transposed(signature):
        # The input plays the output's part: the transposed convolution is the dgrad of one that shrinks.
        columns = _implicit_product(signature, y=x, w=w, x=y or x)
        return {**columns, "channels": w[0] // _groups(signature, w)}
    return None if y is None else _implicit_product(signature, y=y, w=w, x=x)


def output_of(signature: Signature) -> Shape | None:
    """[N, K, ...], the result of a forward convolution; ``None`` where its arguments don't tell."""
    factors, places = _factors(signature), FORWARD[signature.op]
    if factors is None:
        return None
    x, w = factors
    windows = _windows(signature, places, len(x) - 2)
    if _is_transposed(signature):
        return _enlarged(x, w, _groups(signature, w), windows) if windows else None
    told = signature.output if len(signature.output or ()) == len(x) else None
    return (_output(x, w, windows) if windows else None) or told


def _factors(signature: Signature) -> tuple[Shape, Shape] | None:
    """Input and weight."""
    x, w = signature.shape(0), signature.shape(1)
    return (x, w) if x and w and len(x) == len(w) > 2 else None


def _is_transposed(signature: Signature) -> bool:
    place = FORWARD[signature.op].transposed
    return place == ALWAYS or (place is not None and bool(signature.value(place)))


def _windows(signature: Signature, places: _Places, axes: int) -> _Windows | None:
    """Stride, padding and dilation, each along every axis; ``None`` where they weren't recorded."""
    stride, padding, dilation = (_per_axis(signature, place, axes) for place in places[:3])
    if stride is None or padding is None or min(stride) < 1:
        return None
    return stride, padding, dilation or [1] * axes


def _output(x: Shape, w: Shape, windows: _Windows) -> Shape | None:
    """[N, K, ...] of a convolution; ``None`` where its arguments can't be meant."""
    s, p, d = windows
    sizes = [
        (size + 2 * p[i] - d[i] * (kernel - 1) - 1) // s[i] + 1
        for i, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True))
    ]
    return (x[0], w[0], *sizes) if all(size > 0 for size in sizes) else None


def _enlarged(x: Shape, w: Shape, groups: int, windows: _Windows) -> Shape:
    """[N, K, ...] of a transposed one without ``output_padding``."""
    s, p, d = windows
    sizes = [
        (size - 1) * s[i] - 2 * p[i] + d[i] * (kernel - 1) + 1
        for i, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True))
    ]
    return (x[0], w[1] * groups, *(max(size, 1) for size in sizes))


def _per_axis(signature: Signature, place: int, axes: int) -> list[int] | None:
    """The numbers at ``place``, of which one may stand for all axes."""
    one = signature.whole(place)
    values = signature.numbers(place) if one is None else [one]
    if values is None or len(values) not in (1, axes):
        return None
    return values * axes if len(values) == 1 else values


def _implicit_product(signature: Signature, y: Shape, w: Shape, x: Shape) -> Columns:
    groups = _groups(signature, w)
    return {
        "batch": groups,
        "m": y[0] * math.prod(y[2:]),
        "n": max(w[0] // groups, 1),
        "k": math.prod(w[1:]),
        "bytes": _item_bytes(signature) * (math.prod(x) + math.prod(w) + math.prod(y)),
        "direction": "forward",
        "winograd": _has_winograd(x, y, w),
        "channels": w[1],
        **_image(y),
    }


def _image(y: Shape) -> Columns:
    """Rows and columns of a two-dimensional one's outputs."""
    return {"height": y[2], "width": y[3]} if len(y) == 4 else {}


def _has_winograd(x: Shape, y: Shape, w: Shape) -> bool:
    """A stride of one makes the image smaller by less than the window."""
    near = (abs(before - after) < side for before, after, side in zip(x[2:], y[2:], w[2:], strict=True))
    return w[2:] in WINOGRAD and all(near)


def _groups(signature: Signature, w: Shape) -> int:
    """As recorded: of a transposed convolution, whose weight is [C, K/g, ...], the shapes don't tell."""
    x, recorded = signature.shape(0) or (), signature.whole(GROUPS.get(signature.op, -1))
    return recorded or max(x[1] // max(w[1], 1), 1)


def _item_bytes(signature: Signature) -> int:
    return ITEM_BYTES[signature.dtype or "fp32"]


def _backward(signature: Signature) -> Columns | None:
    """grad_output, input, weight: the data gradient, from which :func:`as_weight_gradient` turns the other."""
    dy, x, w = (signature.shape(index) for index in range(3))
    columns = _data_gradient(signature, dy, x, w, transposed=bool(signature.value(7)), groups=signature.whole(9))
    wanted = signature.value(10)
    weight_only = isinstance(wanted, list) and wanted[:2] == [False, True]
    return as_weight_gradient(columns) if columns and weight_only else columns


def _library_backward(signature: Signature) -> Columns | None:
    """Input, grad_output, weight: the backward op of a library in PyTorch up to 1.10."""
    x, dy, w = (signature.shape(index) for index in range(3))
    return _data_gradient(signature, dy, x, w)


def _input_gradient(signature: Signature) -> Columns | None:
    """input_size, grad_output, weight."""
    return _data_gradient(signature, signature.shape(1), signature.output, signature.shape(2))


def _weight_gradient(signature: Signature) -> Columns | None:
    """weight_size, grad_output, input."""
    columns = _data_gradient(signature, signature.shape(1), signature.shape(2), signature.output)
    return None if columns is None else as_weight_gradient(columns)


def _data_gradient(
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
        "bytes": _item_bytes(signature) * (math.prod(dy) + math.prod(x) + math.prod(w)),
        "direction": "dgrad",
        "winograd": _has_winograd(x, dy, w),
        "channels": w[1],
        **_image(smaller),
    }


def as_weight_gradient(columns: Columns) -> Columns:
    """The weight gradient of the convolution whose data gradient ``columns`` describe."""
    return {**columns, "m": columns["k"], "k": columns["m"], "direction": "wgrad"}


def is_weight_gradient(kernel: str) -> bool:
    """Whether a kernel's name says that it computes a weight gradient (MIOpen calls it wrw)."""
    return WEIGHT_GRADIENT.search(kernel) is not None


_MIOPEN = _Places(stride=4, padding=3, dilation=5)
_FUSED = _Places(stride=3, padding=4, dilation=5)
_SLOW = _Places(stride=4, padding=5, dilation=-1)
_ATEN = _Places(stride=3, padding=4, dilation=5, transposed=6)
_DEPTHWISE = _Places(stride=4, padding=5, dilation=6)

FORWARD: dict[str, _Places] = {
    "aten::cudnn_convolution": _Places(stride=3, padding=2, dilation=4),
    "aten::cudnn_convolution_relu": _FUSED,
    "aten::cudnn_convolution_add_relu": _Places(stride=5, padding=6, dilation=7),
    "aten::cudnn_convolution_transpose": _Places(stride=4, padding=2, dilation=5, transposed=ALWAYS),
    "aten::miopen_convolution": _MIOPEN,
    "aten::miopen_convolution_transpose": _Places(stride=5, padding=3, dilation=6, transposed=ALWAYS),
    "aten::miopen_depthwise_convolution": _MIOPEN,
    "aten::miopen_convolution_relu": _FUSED,
    "aten::mkldnn_convolution": _MIOPEN,
    "aten::thnn_conv2d_forward": _SLOW,
    "aten::_slow_conv2d_forward": _SLOW,
    "aten::_convolution": _ATEN,
    "aten::convolution": _ATEN,
    "aten::convolution_overrideable": _ATEN,
    "aten::_conv_depthwise2d": _DEPTHWISE,
    "aten::conv_depthwise3d": _DEPTHWISE,
}

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(FORWARD, _forward),
    "aten::convolution_backward": _backward,
    "aten::cudnn_convolution_backward": _library_backward,
    "aten::miopen_convolution_backward": _library_backward,
    "aten::cudnn_convolution_backward_input": _input_gradient,
    "aten::miopen_convolution_backward_input": _input_gradient,
    "aten::cudnn_convolution_backward_weight": _weight_gradient,
    "aten::miopen_convolution_backward_weight": _weight_gradient,
}
