"""Convolutions as implicit matrix products, ``batch`` being the groups.

    forward   m = N P Q    n = K / g          k = C/g R S
    dgrad     m = N P Q    n = C/g R S        k = K / g
    wgrad     m = K / g    n = C/g R S        k = N P Q

for input [N, C, ...], weight [K, C/g, R, S], output [N, K, P, Q]. Each has the multiply-adds of the forward pass.
"""

import math
import re
from collections.abc import Callable

from tracekit.workload.signature import ITEM_BYTES, Signature

Columns = dict[str, int | float | bool | str | None]
Shape = tuple[int, ...]

WEIGHT_GRADIENT = re.compile(r"wgrad|wrw|bwd_?weight", re.IGNORECASE)


def _forward(stride: int, padding: int, dilation: int, transposed: int | None) -> Callable[[Signature], Columns | None]:
    """The formula of an op that takes input, weight and those argument positions."""

    def columns(signature: Signature) -> Columns | None:
        x, w = signature.shape(0), signature.shape(1)
        if x is None or w is None or len(x) < 3 or len(x) != len(w):
            return None
        if transposed is not None and signature.value(transposed):
            # The input plays the output's part: the transposed convolution is the dgrad of one that shrinks.
            return _implicit_product(signature, y=x, w=w, x_numel=math.prod(x))
        y = _output(x, w, signature.value(stride), signature.value(padding), signature.value(dilation))
        return None if y is None else _implicit_product(signature, y=y, w=w, x_numel=math.prod(x))

    return columns


def _output(
    x: Shape, w: Shape, stride: list[int] | None, padding: list[int] | None, dilation: list[int] | None
) -> Shape | None:
    """[N, K, ...] of a convolution; ``None`` where its arguments weren't recorded."""
    if stride is None or padding is None or dilation is None:
        return None
    spatial = len(x) - 2
    s, p, d = (_per_axis(values, spatial) for values in (stride, padding, dilation))
    sizes = [
        (size + 2 * p[i] - d[i] * (kernel - 1) - 1) // s[i] + 1
        for i, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True))
    ]
    return (x[0], w[0], *sizes) if all(size > 0 for size in sizes) else None


def _per_axis(values: list[int] | int, axes: int) -> list[int]:
    values = values if isinstance(values, list) else [values]
    return values * axes if len(values) == 1 else values


def _implicit_product(signature: Signature, y: Shape, w: Shape, x_numel: int) -> Columns:
    groups = _groups(signature, w)
    return {
        "batch": groups,
        "m": y[0] * math.prod(y[2:]),
        "n": max(y[1] // groups, 1),
        "k": math.prod(w[1:]),
        "bytes": _item_bytes(signature) * (x_numel + math.prod(w) + math.prod(y)),
        "direction": "forward",
    }


def _groups(signature: Signature, w: Shape) -> int:
    x = signature.shape(0) or ()
    return max(x[1] // w[1], 1) if len(x) > 1 and w[1] else 1


def _item_bytes(signature: Signature) -> int:
    return ITEM_BYTES[signature.dtype or "fp32"]


def _backward(signature: Signature) -> Columns | None:
    """grad_output, input, weight: the data gradient, from which :func:`as_weight_gradient` turns the other."""
    dy, x, w = (signature.shape(index) for index in range(3))
    if dy is None or x is None or w is None or len(w) < 3:
        return None
    groups = max(x[1] // w[1], 1)
    return {
        "batch": groups,
        "m": dy[0] * math.prod(dy[2:]),
        "n": math.prod(w[1:]),
        "k": max(w[0] // groups, 1),
        "bytes": _item_bytes(signature) * (math.prod(dy) + math.prod(x) + math.prod(w)),
        "direction": "dgrad",
    }


def as_weight_gradient(columns: Columns) -> Columns:
    """The weight gradient of the convolution whose data gradient ``columns`` describe."""
    return {**columns, "m": columns["k"], "k": columns["m"], "direction": "wgrad"}


def is_weight_gradient(kernel: str) -> bool:
    """Whether a kernel's name says that it computes a weight gradient (MIOpen calls it wrw)."""
    return WEIGHT_GRADIENT.search(kernel) is not None


_LIBRARY = _forward(stride=3, padding=2, dilation=4, transposed=None)
_MIOPEN = _forward(stride=4, padding=3, dilation=5, transposed=None)
_ATEN = _forward(stride=3, padding=4, dilation=5, transposed=6)

FORMULAS: dict[str, Callable[[Signature], Columns | None]] = {
    "aten::cudnn_convolution": _LIBRARY,
    "aten::cudnn_convolution_relu": _forward(stride=3, padding=4, dilation=5, transposed=None),
    "aten::miopen_convolution": _MIOPEN,
    "aten::miopen_depthwise_convolution": _MIOPEN,
    "aten::_convolution": _ATEN,
    "aten::convolution": _ATEN,
    "aten::_conv_depthwise2d": _forward(stride=4, padding=5, dilation=6, transposed=None),
    "aten::convolution_backward": _backward,
}
