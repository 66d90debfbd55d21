"""Normalisations. A batch norm runs as several kernels of which each has its own passes over the input."""

import math
import re
from typing import NamedTuple

from tracekit.workload.ops.vector import (
    Columns,
    Traffic,
    columns_of,
    every_tensor_once,
    largest_of,
    read_and_write,
    size_of,
)
from tracekit.workload.signature import Signature

FLOPS_PER_ELEMENT = 8
SUMS, SCALING = "sums", "scaling"
"""What a kernel does that isn't a whole norm: sums over the elements of each channel, or each element by itself."""
ROWS, SQUARES = "rows", "squares"
"""PyTorch's own layer norm, and its RMS norm, which sums squares alone."""
ROW_KERNELS = re.compile(r"vectorized_layer_norm|layer_norm_grad_input")
"""Of both: a small block takes a row (ATen/native/cuda/layer_norm_kernel.cu)."""
BATCH_NORMS = ("aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_batch_norm_with_update")
GROUP_NORMS = ("aten::native_group_norm", "aten::native_group_norm_backward")


class _Pass(NamedTuple):
    """A kernel of a norm that takes several: how often it goes over the input, and over a value of each channel."""

    name: re.Pattern[str]
    over_input: int
    over_channels: int = 0
    part: str | None = None


PASSES = (
    # PyTorch's own batch norm (ATen/native/cuda/Normalization.cuh), of which [N, H, W, C] has kernels of its own.
    _Pass(re.compile(r"batch_norm_collect_statistics(?!_channels_last)"), 1, part=SUMS),
    _Pass(re.compile(r"batch_norm_collect_statistics"), 1),
    _Pass(re.compile(r"batch_norm_transform_input"), 2, part=SCALING),
    _Pass(re.compile(r"batch_norm_backward_reduce(?!_kernel_channels_last|_channels_last)"), 2, part=SUMS),
    _Pass(re.compile(r"batch_norm_backward_reduce"), 2),
    _Pass(re.compile(r"batch_norm_backward_elemt"), 3, part=SCALING),
    _Pass(re.compile(r"batch_norm_backward_kernel"), 3, part=SUMS),
    _Pass(re.compile(r"batch_norm_calc_invstd"), 0, 2),
    # aiter's group norm goes over the input for its sums, then to scale it.
    _Pass(re.compile(r"groupnorm_kernel_dispatch_down"), 1),
    _Pass(re.compile(r"groupnorm_kernel_dispatch_up"), 2),
    # Of layer norm's backward: reads the input and the output's gradient, and writes little.
    _Pass(re.compile(r"GammaBeta", re.IGNORECASE), 2),
)
MOMENTS = _Pass(re.compile(r"RowwiseMoments"), 1, part=SUMS)
"""Of group norm (ATen/native/cuda/group_norm_kernel.cu); a block for each group."""
GROUP_NORM_PASSES = (
    MOMENTS,
    _Pass(re.compile(r"ComputeInternalGradients"), 2, part=SUMS),
    _Pass(re.compile(r"FusedParams|GammaBetaBackward"), 0, 2),
)
RUNNING_STATISTICS = _Pass(re.compile(r"unrolled_elementwise_kernel_for_multi_outputs"), 0, 7)
"""After a batch norm's sums: reads them and the running statistics of each channel, writes these and the deviation
(batch_norm_update_stats_and_invert in ATen/native/cuda/Normalization.cu)."""
ELEMENTWISE = _Pass(re.compile(r"elementwise_kernel"), 0, 2)
"""Of a group norm: what the others worked out for each channel, or where its grid has room, the scaling."""
GROUPS = 6
"""Where a group norm has their number."""

CHANNELS_FIRST = re.compile(r"group_norm|instance_norm")
"""Ops on [N, C, ...] that treat each sample by itself."""
NORMALISED = {
    **dict.fromkeys(("aten::layer_norm", "aten::native_layer_norm", "aten::_fused_rms_norm"), 1),
    **dict.fromkeys(("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward"), 2),
}
"""Where ops have the shape that they normalise over, the last axes of the input."""
PARAMETER_BYTES = 4
"""Sums and factors per channel are fp32."""


def traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Every input read once, one output like the largest written."""
    largest = largest_of(signature.tensors)
    bytes_ = size_of(signature.tensors, item_bytes) + largest.numel * largest.item_bytes(item_bytes)
    shape = _rows_and_columns(signature, largest.shape)
    return columns_of(shape, flops=FLOPS_PER_ELEMENT * largest.numel, bytes_=bytes_)


def _rows_and_columns(signature: Signature, shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with all axes that a norm works over as one; of a group norm those that a channel's lie along."""
    if "batch_norm" in signature.op and len(shape) > 1:
        return shape[1], math.prod(shape) // max(shape[1], 1)
    if CHANNELS_FIRST.search(signature.op):
        return (math.prod(shape[:2]), math.prod(shape[2:])) if len(shape) > 2 else shape
    axes = signature.value(NORMALISED.get(signature.op, -1))
    return (*shape[: -len(axes)], math.prod(shape[-len(axes) :])) if isinstance(axes, list) and axes else shape


def own_passes(signature: Signature, kernel: str, item_bytes: int, room: int | None = None) -> Columns | None:
    """The work of a kernel that does a part of a norm; ``None`` for one that does it all.

    Args:
        signature: Of the op.
        kernel: Its name.
        item_bytes: Of an element whose type the trace doesn't tell.
        room: Elements that its threads can take, at most; ``None`` where nobody knows.
    """
    found = next((one for one in _passes_of(signature.op) if one.name.search(kernel)), None)
    if found is None or not signature.tensors:
        return None
    largest = largest_of(signature.tensors)
    if found is ELEMENTWISE and (room is None or room >= largest.numel):
        return {**(traffic(signature, item_bytes) or {}), "part": SCALING}
    channels = math.prod(largest.shape[:2] if signature.op in GROUP_NORMS else largest.shape[1:2])
    values = found.over_input * largest.numel + found.over_channels * channels
    bytes_ = found.over_input * largest.numel * largest.item_bytes(item_bytes)
    shape = _worked_over(signature, found, largest.shape) if found.over_input else (channels, 1)
    columns = columns_of(shape, flops=2 * values, bytes_=bytes_ + found.over_channels * channels * PARAMETER_BYTES)
    return {**columns, "part": found.part}


def part_of_rows(op: str, kernel: str) -> str | None:
    """Which of PyTorch's own norms over rows a kernel is; ``None`` for any other kernel."""
    if not ROW_KERNELS.search(kernel):
        return None
    return SQUARES if "rms_norm" in op else ROWS


def _passes_of(op: str) -> tuple[_Pass, ...]:
    if op in GROUP_NORMS:
        return (*GROUP_NORM_PASSES, ELEMENTWISE)
    return (*PASSES, RUNNING_STATISTICS) if op in BATCH_NORMS else PASSES


def _worked_over(signature: Signature, kernel: _Pass, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Rows that a kernel works over: of a group norm's moments its groups."""
    groups = signature.value(GROUPS) if kernel is MOMENTS else None
    if not isinstance(groups, int) or groups < 1:
        return _rows_and_columns(signature, shape)
    return shape[0] * groups, math.prod(shape[1:]) // groups


TRAFFIC: dict[str, Traffic] = {
    **dict.fromkeys(("aten::cudnn_batch_norm", "aten::miopen_batch_norm", *BATCH_NORMS), traffic),
    "_C::rms_norm": every_tensor_once(FLOPS_PER_ELEMENT),
    "_C::fused_add_rms_norm": read_and_write(both=(0, 1), read=(2,)),
    "sgl_kernel::rmsnorm": every_tensor_once(FLOPS_PER_ELEMENT),
    "sgl_kernel::gemma_rmsnorm": every_tensor_once(FLOPS_PER_ELEMENT),
    "sgl_kernel::fused_add_rmsnorm": read_and_write(both=(0, 1), read=(2,)),
    "aiter::rmsnorm": every_tensor_once(FLOPS_PER_ELEMENT),
    "aiter::add_rmsnorm": every_tensor_once(FLOPS_PER_ELEMENT),
}
