"""Compute the traffic of reductions, scans, sorts and losses."""

import math
import re
from dataclasses import replace

from tracekit.workload.ops.memory_traffic import (
    INDEX_BYTES,
    PICKED,
    Columns,
    TrafficFormula,
    build_traffic_columns,
    find_largest,
    leave_unread,
    sum_bytes,
)
from tracekit.workload.signature import INTEGER_DTYPES, ITEM_BYTES, Signature, parse_cpp_dtype

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


TRAFFIC: dict[str, TrafficFormula] = {
    **dict.fromkeys(("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::_logcumsumexp"), _compute_scan),
    "aten::sort": _compute_sort,
    "aten::nll_loss_forward": leave_unread(_make_nll_loss(1), PICKED),
    "aten::nll_loss2d_forward": leave_unread(_make_nll_loss(1), PICKED),
    "aten::nll_loss_backward": leave_unread(_make_nll_loss(2), PICKED),
    "aten::nll_loss2d_backward": leave_unread(_make_nll_loss(2), PICKED),
}
