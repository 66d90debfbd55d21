"""Compute the traffic of reductions, scans, sorts and losses."""

import math
import re
from collections.abc import Callable
from dataclasses import replace

from tracekit.workload.ops.memory_traffic import (
    INDEX_BYTES,
    PICKED,
    Columns,
    TrafficFormula,
    build_traffic_columns,
    find_largest,
    make_single_pass,
    sum_bytes,
)
from tracekit.workload.ops.registry import op, other_ops_of
from tracekit.workload.signature import INTEGER_DTYPES, ITEM_BYTES, Signature, Tensor, parse_cpp_dtype

AXES_POSITIONS = {
    **dict.fromkeys(
        ("all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "logsumexp", "max", "mean", "min", "nansum",
         "prod", "std", "sum", "var"),
        1,
    ),
    **dict.fromkeys(("linalg_vector_norm", "norm"), 2),
}  # fmt: skip
"""Position of the reduced axes, or axis, by op; without them, all are reduced."""
INDEX_OPS = ("argmax", "argmin", "count_nonzero")
BOOL_OPS = ("all", "any")
LONG_BYTES = ITEM_BYTES["int64"]
SCALAR_TYPE_BYTES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 11: 1, 15: 2}
"""Bytes of a recorded dtype, by its number in c10/core/ScalarType.h."""
READ_TYPE = re.compile(r"\bReduceOp<\s*([\w: ]+?)\s*,")
"""What PyTorch's own reduction reads: integers are cast to long before they are summed."""


def cast_to_read_type(signature: Signature, kernel: str) -> Signature:
    """Return the op's inputs with the first tensor in the type that the kernel reads, if its name has that."""
    found = READ_TYPE.search(kernel)
    first = next((index for index in range(len(signature.dims)) if signature.get_tensors(index)), None)
    if found is None or parse_cpp_dtype(found[1]) is None or first is None or first >= len(signature.types):
        return signature
    return replace(signature, types=[*signature.types[:first], found[1], *signature.types[first + 1 :]])


@other_ops_of("reduction")
def compute_traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the traffic of a reduction: every input read once, the result written unless it is among them."""
    largest = find_largest(signature.tensors)
    bytes_ = sum_bytes(signature.tensors, item_bytes) + _compute_result_bytes(signature, item_bytes)
    return build_traffic_columns(largest.shape, flops=largest.numel, bytes_=bytes_)


def _compute_result_bytes(signature: Signature, item_bytes: int) -> int:
    """Compute the bytes of the result; 0 for other ops than those of ``AXES_POSITIONS``, or with the result given."""
    op = signature.op.removeprefix("aten::")
    place, tensor = AXES_POSITIONS.get(op), signature.get_tensor(0)
    if place is None or tensor is None or len(signature.tensors) > 1:
        return 0
    axis = signature.get_integer(place)
    axes = [axis] if axis is not None else signature.get_integers(place)
    size = INDEX_BYTES if op in INDEX_OPS else 1 if op in BOOL_OPS else tensor.get_item_bytes(item_bytes)
    if op in ("max", "min") and axis is not None:
        size += INDEX_BYTES
    return size * _count_results(tensor.shape, axes)


def _count_results(shape: tuple[int, ...], axes: list[int] | None) -> int:
    """Count the elements that are left of a shape after reducing some axes, or all without any."""
    if not axes or not shape:
        return 1
    reduced = {axis % len(shape) for axis in axes}
    return math.prod(size for place, size in enumerate(shape) if place not in reduced)


@op("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::_logcumsumexp", family="reduction")
def _compute_scan(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a scan: the input, cast to the result's type before, read once, a result like it written."""
    tensor = signature.get_tensor(0)
    if tensor is None:
        return None
    promoted = LONG_BYTES if tensor.dtype in INTEGER_DTYPES else tensor.get_item_bytes(item_bytes)
    asked = signature.get_integer(2)
    size = promoted if asked is None else SCALAR_TYPE_BYTES.get(asked, promoted)
    bytes_ = (tensor.stored_elements + tensor.numel) * size
    return build_traffic_columns(tensor.shape, flops=tensor.numel, bytes_=bytes_)


@op("aten::sort", family="reduction")
def _compute_sort(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a sort: the input read once, values and their indices written."""
    tensor = signature.get_tensor(0)
    if tensor is None:
        return None
    bytes_ = tensor.compute_bytes(item_bytes) + tensor.numel * (tensor.get_item_bytes(item_bytes) + INDEX_BYTES)
    return build_traffic_columns(tensor.shape, flops=tensor.numel, bytes_=bytes_)


def _make_nll_loss(target: int) -> TrafficFormula:
    """Make the formula of a loss that reads or writes one element per row, at the index in the argument ``target``."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        targets = signature.get_tensors(target)
        if not targets:
            return None
        rows = targets[0].numel
        return build_traffic_columns((rows,), flops=rows, bytes_=rows * (item_bytes + INDEX_BYTES))

    return columns


op("aten::nll_loss_forward", "aten::nll_loss2d_forward", family="reduction", unread=PICKED)(_make_nll_loss(1))
op("aten::nll_loss_backward", "aten::nll_loss2d_backward", family="reduction", unread=PICKED)(_make_nll_loss(2))


SEARCH_ELEMENTS = 9
"""Elements of a forward window that take as long as one element's search for its windows in ``max_pool_backward_nchw``,
on an H100 (2×2 at stride 2: 2.5 clocks) and a V100 (3×3 at stride 2: 3.0)."""
MAX_SCALE = 1 << 20
WindowCounter = Callable[[Signature, Tensor], tuple[int, int] | None]
"""Function that returns the number of output elements, and of input elements per output element."""


_RESIZE_OPS = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip


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


@op(*(f"aten::{name}_backward" for name in _RESIZE_OPS), family="reduction")
def _compute_resize_backward(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute interpolation's gradient: grad_output, output_size, input_size."""
    dy, shape = signature.get_tensors(0), signature.get_integers(2)
    if not dy or shape is None:
        return None
    written = math.prod(shape) * dy[0].get_item_bytes(item_bytes)
    return build_traffic_columns(tuple(shape), flops=dy[0].numel, bytes_=sum_bytes(dy, item_bytes) + written)


op("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", family="reduction")(
    _make_forward(_count_pooling_windows, INDEX_BYTES)
)
op("aten::avg_pool2d", "aten::avg_pool3d", family="reduction")(_make_forward(_count_pooling_windows))
op(
    "aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d", *(f"aten::{name}" for name in _RESIZE_OPS),
    family="reduction",
)(_make_forward(_count_resize_windows))  # fmt: skip
op("aten::adaptive_max_pool2d", family="reduction")(_make_forward(_count_resize_windows, INDEX_BYTES))
op("aten::adaptive_max_pool2d_backward", family="reduction")(_make_backward(1, indices_at=2))
op("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward", family="reduction")(
    _make_backward(1, indices_at=7)
)
op(
    "aten::avg_pool2d_backward", "aten::avg_pool3d_backward", "aten::_adaptive_avg_pool2d_backward",
    family="reduction",
)(_make_backward(1))  # fmt: skip


op("tracekit::select_keys", family="reduction")(make_single_pass(1))  # scores, and the places of the highest
