"""Pooling and interpolation of [N, C, ...]."""

import math
from collections.abc import Callable

from tracekit.workload.ops.vector import INDEX_BYTES, Columns, Traffic, columns_of, size_of
from tracekit.workload.signature import Signature, Tensor

SEARCH = 9
"""Elements of a forward window that take as long as one to find the windows that it lies in, as
``max_pool_backward_nchw`` does on an H100 (2×2 by steps of 2: 2.5 clocks) and a V100 (3×3 by 2: 3.0)."""
MOST_ENLARGED = 1 << 20
Windows = Callable[[Signature, Tensor], tuple[int, int] | None]
"""How many elements the output has, and of how many of the input each is made."""


def _window(signature: Signature, x: Tensor) -> tuple[int, int] | None:
    """Of kernel size, stride and padding at 1, 2 and 3; max pooling's dilation at 4 and ceil_mode after it.

    A window that would begin behind the input is left out (ATen/native/Pool.h, pooling_output_shape).
    """
    kernel, stride, padding = (signature.numbers(index) for index in (1, 2, 3))
    if not kernel or not padding or min(stride or kernel) < 1:
        return None
    maximum = "max_pool" in signature.op
    dilation = signature.numbers(4) if maximum else [1]
    ceil = bool(signature.value(5 if maximum else 4))
    axes = len(x.shape) - 2 if len(x.shape) > len(kernel) else len(x.shape)
    sizes = []
    for axis, size in enumerate(x.shape[-axes:]):
        k, p, d = (_at(values, axis) for values in (kernel, padding, dilation or [1]))
        s = _at(stride, axis) if stride else k
        room = size + 2 * p - d * (k - 1) - 1
        last = -(-room // s) if ceil else room // s
        sizes.append(last if ceil and last * s >= size + p else last + 1)
    return math.prod((*x.shape[:-axes], *sizes)), math.prod(_at(kernel, axis) for axis in range(axes))


def _asked_for(signature: Signature, x: Tensor) -> tuple[int, int] | None:
    """Of an output size at 1, or scales for the last axes at 2 or 3.

    Every element of the input is in one window, or in several where they outnumber them.
    """
    sizes, scale = signature.numbers(1), _scale(signature)
    if sizes is None and scale is not None and len(scale) == len(x.shape) - 2:
        sizes = [int(size * factor) for size, factor in zip(x.shape[2:], scale, strict=True)]
    if not sizes:
        return None
    windows = math.prod((*x.shape[: -len(sizes)], *sizes))
    return windows, max(x.numel // max(windows, 1), 1)


def _scale(signature: Signature) -> list[float] | None:
    """Factors on the last axes."""
    told = (value for value in (signature.value(2), signature.value(3)) if isinstance(value, list) and value)
    scale = next(told, [])
    known = all(isinstance(factor, int | float) and 0 < factor < MOST_ENLARGED for factor in scale)
    return scale if known and scale else None


def _at(values: list[int], axis: int) -> int:
    return values[axis] if axis < len(values) else values[0]


def _forward(made: Windows, index_bytes: int = 0) -> Traffic:
    """The input read once, the output (and the positions of its maxima) written; a row is a window."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        x = signature.tensor(0)
        found = None if x is None else made(signature, x)
        if x is None or found is None:
            return None
        windows, elements = found
        written = windows * (x.item_bytes(item_bytes) + index_bytes)
        return columns_of((windows, elements), flops=windows * elements, bytes_=x.size_bytes(item_bytes) + written)

    return columns


def _backward(input_index: int, indices_at: int | None = None) -> Traffic:
    """The output's gradient read, a gradient like the input written, of which each element searches its windows."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        dy, x = signature.at(0), signature.at(input_index)
        if not dy or not x:
            return None
        read = size_of(dy, item_bytes) + (0 if indices_at is None else dy[0].numel * INDEX_BYTES)
        bytes_ = read + x[0].numel * x[0].item_bytes(item_bytes)
        return columns_of((x[0].numel, SEARCH), flops=x[0].numel, bytes_=bytes_)

    return columns


def _resized_back(signature: Signature, item_bytes: int) -> Columns | None:
    """Interpolation's gradient: grad_output, output_size, input_size."""
    dy, shape = signature.at(0), signature.numbers(2)
    if not dy or shape is None:
        return None
    written = math.prod(shape) * dy[0].item_bytes(item_bytes)
    return columns_of(tuple(shape), flops=dy[0].numel, bytes_=size_of(dy, item_bytes) + written)


_RESIZES = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip

TRAFFIC: dict[str, Traffic] = {
    "aten::max_pool2d_with_indices": _forward(_window, INDEX_BYTES),
    "aten::max_pool3d_with_indices": _forward(_window, INDEX_BYTES),
    "aten::avg_pool2d": _forward(_window),
    "aten::avg_pool3d": _forward(_window),
    "aten::_adaptive_avg_pool2d": _forward(_asked_for),
    "aten::_adaptive_avg_pool3d": _forward(_asked_for),
    "aten::adaptive_max_pool2d": _forward(_asked_for, INDEX_BYTES),
    "aten::adaptive_max_pool2d_backward": _backward(1, indices_at=2),
    "aten::max_pool2d_with_indices_backward": _backward(1, indices_at=7),
    "aten::max_pool3d_with_indices_backward": _backward(1, indices_at=7),
    "aten::avg_pool2d_backward": _backward(1),
    "aten::avg_pool3d_backward": _backward(1),
    "aten::_adaptive_avg_pool2d_backward": _backward(1),
    **{f"aten::{op}": _forward(_asked_for) for op in _RESIZES},
    **{f"aten::{op}_backward": _resized_back for op in _RESIZES},
}
