"""Normalisations. A batch norm runs as several kernels of which each has its own passes over the input."""

import math
import re

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

# Passes over the input that a kernel of PyTorch's own batch norm makes; in the order of the kernels' names.
BATCH_NORM_PASSES = (
    (re.compile(r"batch_norm_collect_statistics"), 1),
    (re.compile(r"batch_norm_transform_input"), 2),
    (re.compile(r"batch_norm_backward_reduce"), 2),
    (re.compile(r"batch_norm_backward_elemt"), 3),
)
# After a batch norm's sums: reads them and the running statistics of each channel, writes these and the deviation
# (batch_norm_update_stats_and_invert in ATen/native/cuda/Normalization.cu).
RUNNING_STATISTICS = re.compile(r"unrolled_elementwise_kernel_for_multi_outputs")
BATCH_NORMS = ("aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_batch_norm_with_update")
STATISTICS = 7
# aiter's group norm goes over the input for its sums, then to scale it.
GROUP_PASSES = (
    (re.compile(r"groupnorm_kernel_dispatch_down"), 1),
    (re.compile(r"groupnorm_kernel_dispatch_up"), 2),
)
# GammaBeta kernels of layer norm's backward read the input and the output's gradient, and write little.
GAMMA_BETA = re.compile(r"GammaBeta", re.IGNORECASE)

# Group norm's kernels beside the elementwise one that does the op's own reading and writing: passes over the input,
# then those over [N, C] (ATen/native/cuda/group_norm_kernel.cu).
GROUP_NORM = ("aten::native_group_norm", "aten::native_group_norm_backward")
GROUP_NORM_PASSES = (
    (re.compile(r"RowwiseMoments"), 1, 0),
    (re.compile(r"ComputeInternalGradients"), 2, 0),
    (re.compile(r"FusedParams|GammaBetaBackward"), 0, 2),
)
CHANNELS_FIRST = re.compile(r"batch_norm|group_norm|instance_norm")
"""Ops on [N, C, ...]."""
NORMALISED = {"aten::layer_norm": 1, "aten::native_layer_norm": 1, "aten::native_layer_norm_backward": 2}
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
    """``shape`` with all axes that a layer norm works over as one, or those that a channel's elements lie along."""
    if CHANNELS_FIRST.search(signature.op):
        return (math.prod(shape[:2]), math.prod(shape[2:])) if len(shape) > 2 else shape
    axes = signature.value(NORMALISED.get(signature.op, -1))
    return (*shape[: -len(axes)], math.prod(shape[-len(axes) :])) if isinstance(axes, list) and axes else shape


def own_passes(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    """The work of a kernel that does one pass of a norm; ``None`` for one that does it all."""
    if signature.op in GROUP_NORM:
        return _group_norm_pass(signature, kernel, item_bytes)
    if signature.op in BATCH_NORMS and RUNNING_STATISTICS.search(kernel):
        return _running_statistics(signature)
    passes = next((count for pattern, count in (*BATCH_NORM_PASSES, *GROUP_PASSES) if pattern.search(kernel)), None)
    if passes is None and GAMMA_BETA.search(kernel):
        passes = 2
    if passes is None or not signature.tensors:
        return None
    largest = largest_of(signature.tensors)
    size = passes * largest.numel * largest.item_bytes(item_bytes)
    shape = _rows_and_columns(signature, largest.shape)
    return columns_of(shape, flops=2 * passes * largest.numel, bytes_=size)


def _running_statistics(signature: Signature) -> Columns | None:
    shape = signature.shape(0)
    if shape is None or len(shape) < 2:
        return None
    values = STATISTICS * shape[1]
    return columns_of((shape[1], 1), flops=values, bytes_=values * PARAMETER_BYTES)


def _group_norm_pass(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    found = next((passes for pattern, *passes in GROUP_NORM_PASSES if pattern.search(kernel)), None)
    if found is None or not signature.tensors:
        return None
    largest = largest_of(signature.tensors)
    whole, channels = largest.numel, math.prod(largest.shape[:2])
    size = found[0] * whole * largest.item_bytes(item_bytes) + found[1] * channels * PARAMETER_BYTES
    shape = _rows_and_columns(signature, largest.shape) if found[0] else (channels, 1)
    return columns_of(shape, flops=2 * (found[0] * whole + found[1] * channels), bytes_=size)


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
