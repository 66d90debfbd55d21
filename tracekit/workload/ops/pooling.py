"""Compute pooling and interpolation of [N, C, ...]."""

import math
from collections.abc import Callable

from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, TrafficFormula, build_traffic_columns, sum_bytes
from tracekit.workload.signature import Signature, Tensor

SEARCH_ELEMENTS = 9
"""Elements of a forward window that take as long as one element's search for its windows in ``max_pool_backward_nchw``,
on an H100 (2×2 at stride 2: 2.5 clocks) and a V100 (3×3 at stride 2: 3.0)."""
MAX_SCALE = 1 << 20
WindowCounter = Callable[[Signature, Tensor], tuple[int, int] | None]
"""Function that returns the number of output elements, and of input elements per output element."""


def _count_pooling_windows(signature: Signature, x: Tensor) -> tuple[int, int] | None:
    """Count the windows of a pooling op with kernel size, stride and padding at 1, 2 and 3.

    Max pooling has its dilation at 4 and ceil_mode after it. A window that would begin behind the input is left out
    (ATen/native/Pool.h, pooling_output_shape).
    """
    kernel, stride, padding = (signature.get_integers(index) for index in (1, 2, 3))
    if not kernel or not padding or min(stride or kernel) < 1:
        return None
    maximum = "max_pool" in signature.op
    dilation = signature.get_integers(4) if maximum else [1]
    ceil = bool(signature.get_value(5 if maximum else 4))
    axes = len(x.shape) - 2 if len(x.shape) > len(kernel) else len(x.shape)
    sizes = []
    for axis, size in enumerate(x.shape[-axes:]):
        k, p, d = (_get_axis_value(values, axis) for values in (kernel, padding, dilation or [1]))
        s = _get_axis_value(stride, axis) if stride else k
        room = size + 2 * p - d * (k - 1) - 1
        last = -(-room // s) if ceil else room // s
        sizes.append(last if ceil and last * s >= size + p else last + 1)
    return math.prod((*x.shape[:-axes], *sizes)), math.prod(_get_axis_value(kernel, axis) for axis in range(axes))


def _count_resize_windows(signature: Signature, x: Tensor) -> tuple[int, int] | None:
    """Count the windows of an op with an output size at 1, or scales for the last axes at 2 or 3.

    Every element of the input is in one window, or in several if there are more windows than elements.
    """
    sizes, scale = signature.get_integers(1), _parse_scale(signature)
    if sizes is None and scale is not None and len(scale) == len(x.shape) - 2:
        sizes = [int(size * factor) for size, factor in zip(x.shape[2:], scale, strict=True)]
    if not sizes:
        return None
    windows = math.prod((*x.shape[: -len(sizes)], *sizes))
    return windows, max(x.numel // max(windows, 1), 1)


def _parse_scale(signature: Signature) -> list[float] | None:
    """Parse the factors on the last axes."""
    told = (value for value in (signature.get_value(2), signature.get_value(3)) if isinstance(value, list) and value)
    scale = next(told, [])
    known = all(isinstance(factor, int | float) and 0 < factor < MAX_SCALE for factor in scale)
    return scale if known and scale else None


def _get_axis_value(values: list[int], axis: int) -> int:
    return values[axis] if axis < len(values) else values[0]


def _make_forward(made: WindowCounter, index_bytes: int = 0) -> TrafficFormula:
    """Make a forward formula: input read once, output (and positions of maxima) written; each window is a row."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        x = signature.get_tensor(0)
        found = None if x is None else made(signature, x)
        if x is None or found is None:
            return None
        windows, elements = found
        written = windows * (x.get_item_bytes(item_bytes) + index_bytes)
        return build_traffic_columns(
            (windows, elements), flops=windows * elements, bytes_=x.compute_bytes(item_bytes) + written
        )

    return columns


def _make_backward(input_index: int, indices_at: int | None = None) -> TrafficFormula:
    """Make a backward formula: reads the output's gradient, writes the input's, whose elements search their windows."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        dy, x = signature.get_tensors(0), signature.get_tensors(input_index)
        if not dy or not x:
            return None
        read = sum_bytes(dy, item_bytes) + (0 if indices_at is None else dy[0].numel * INDEX_BYTES)
        bytes_ = read + x[0].numel * x[0].get_item_bytes(item_bytes)
        return build_traffic_columns((x[0].numel, SEARCH_ELEMENTS), flops=x[0].numel, bytes_=bytes_)

    return columns


def _compute_resize_backward(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute interpolation's gradient: grad_output, output_size, input_size."""
    dy, shape = signature.get_tensors(0), signature.get_integers(2)
    if not dy or shape is None:
        return None
    written = math.prod(shape) * dy[0].get_item_bytes(item_bytes)
    return build_traffic_columns(tuple(shape), flops=dy[0].numel, bytes_=sum_bytes(dy, item_bytes) + written)


_RESIZE_OPS = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip

TRAFFIC: dict[str, TrafficFormula] = {
    "aten::max_pool2d_with_indices": _make_forward(_count_pooling_windows, INDEX_BYTES),
    "aten::max_pool3d_with_indices": _make_forward(_count_pooling_windows, INDEX_BYTES),
    "aten::avg_pool2d": _make_forward(_count_pooling_windows),
    "aten::avg_pool3d": _make_forward(_count_pooling_windows),
    "aten::_adaptive_avg_pool2d": _make_forward(_count_resize_windows),
    "aten::_adaptive_avg_pool3d": _make_forward(_count_resize_windows),
    "aten::adaptive_max_pool2d": _make_forward(_count_resize_windows, INDEX_BYTES),
    "aten::adaptive_max_pool2d_backward": _make_backward(1, indices_at=2),
    "aten::max_pool2d_with_indices_backward": _make_backward(1, indices_at=7),
    "aten::max_pool3d_with_indices_backward": _make_backward(1, indices_at=7),
    "aten::avg_pool2d_backward": _make_backward(1),
    "aten::avg_pool3d_backward": _make_backward(1),
    "aten::_adaptive_avg_pool2d_backward": _make_backward(1),
    **{f"aten::{op}": _make_forward(_count_resize_windows) for op in _RESIZE_OPS},
    **{f"aten::{op}_backward": _compute_resize_backward for op in _RESIZE_OPS},
}
