"""Which ops an op calls itself on CUDA, and only there: a bias behind a convolution, zeros before a gradient."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tracekit.capturing.kernel_names import BAG_IS_SPARSE, BIAS, BOTH_GRADIENTS, STRIDE, is_depthwise
from tracekit.workload.ops.embedding import TABLE_ROWS_ARGUMENT

MEAN, REDUCTION = 1, 2
"""Of a loss: what it becomes of its elements, and which argument tells."""
Following = tuple[str, tuple[Any, ...]]
"""An op and its arguments; tensors are on the meta device."""


def list_following_ops(op: str, given: Sequence[Any], result: Any) -> list[Following]:
    """List the ops that an op calls itself on CUDA, where they have kernels of their own.

    Args:
        op: Its name.
        given: Its arguments.
        result: What it returns; None where that isn't known.
    """
    return FOLLOWING[op](given, result) if op in FOLLOWING else []


def _follow_convolution(given: Sequence[Any], result: Any) -> list[Following]:
    if given[BIAS] is None or given[STRIDE] is None or is_depthwise(given):
        return []
    out = result if isinstance(result, Tensor) else torch.ops.aten.convolution(*given)
    bias = given[BIAS].view(1, -1, *[1] * (out.dim() - 2))
    return [("add_", (out, bias, 1))]


def _follow_convolution_backward(given: Sequence[Any], result: Any) -> list[Following]:
    of_bias = (given[-1] or BOTH_GRADIENTS)[BIAS]
    axes = [axis for axis in range(given[0].dim()) if axis != 1]
    return [("sum", (given[0], axes, False, None))] if of_bias else []


def _follow_loss(given: Sequence[Any], result: Any) -> list[Following]:
    if (given[REDUCTION] if len(given) > REDUCTION else MEAN) != MEAN:
        return []
    shape = torch.broadcast_shapes(given[0].shape, given[1].shape)
    return [("mean", (given[0].new_empty(shape),))]


def _zero_like_second(given: Sequence[Any], result: Any) -> list[Following]:
    return [("fill_", (given[1], 0))]


def _zero_table(given: Sequence[Any], result: Any) -> list[Following]:
    return _zero_rows(given, "aten::embedding_dense_backward")


def _zero_bags_table(given: Sequence[Any], result: Any) -> list[Following]:
    return [] if given[BAG_IS_SPARSE] else _zero_rows(given, "aten::_embedding_bag_backward")


def _zero_rows(given: Sequence[Any], op: str) -> list[Following]:
    """Zero the gradient of a table, which an op computes."""
    rows = given[TABLE_ROWS_ARGUMENT[op]]
    return [("fill_", (given[0].new_empty(rows, given[0].shape[-1]), 0))]


def _fill_and_copy(given: Sequence[Any], result: Any) -> list[Following]:
    grad, sizes = given[:2]
    whole = grad.new_empty(sizes)
    part = whole.as_strided(grad.shape, _spread_strides(whole, grad))
    return [("fill_", (whole, 0)), ("copy_", (part, grad, False))]


def _spread_strides(whole: Tensor, part: Tensor) -> list[int]:
    """Return strides with which a part of a tensor lies in it, row after row with gaps."""
    gap = max(whole.numel() // max(part.numel(), 1), 1)
    return [math.prod(part.shape[axis + 1 :]) * (gap if axis < part.dim() - 1 else 1) for axis in range(part.dim())]


FOLLOWING: dict[str, Callable[[Sequence[Any], Any], list[Following]]] = {
    "convolution": _follow_convolution,
    "convolution_backward": _follow_convolution_backward,
    "smooth_l1_loss": _follow_loss,
    "huber_loss": _follow_loss,
    "max_pool2d_with_indices_backward": _zero_like_second,
    "nll_loss_backward": _zero_like_second,
    "embedding_dense_backward": _zero_table,
    "_embedding_bag_backward": _zero_bags_table,
    "select_backward": _fill_and_copy,
    "slice_backward": _fill_and_copy,
}
