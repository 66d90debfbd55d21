"""Compute the work of normalisations. A batch norm runs several kernels with different passes over the input."""

import math
import re
from typing import NamedTuple

from predictors.kernels import LIBRARY_PART
from tracekit.workload.ops.memory_traffic import (
    Columns,
    build_traffic_columns,
    find_largest,
    make_read_write,
    make_single_pass,
    sum_bytes,
)
from tracekit.workload.ops.registry import op, other_ops_of
from tracekit.workload.signature import Signature

FLOPS_PER_ELEMENT = 8
SUMS_PART, SCALING_PART, COLUMN_SUMS_PART = "sums", "scaling", "column sums"
"""Part of a kernel that isn't a whole norm: sums over the elements of each channel, scaling of each element, or sums of
each column over all rows."""
ROWS_PART, SQUARES_PART = "rows", "squares"
"""Part of a kernel of PyTorch's own layer norm, or of its RMS norm, which only sums squares."""
ROW_KERNELS = re.compile(r"vectorized_layer_norm|layer_norm_grad_input")
"""Kernels of both, with a small block per row (ATen/native/cuda/layer_norm_kernel.cu)."""
LIBRARY_KERNELS = re.compile(
    r"cudnn_generated\w*(?:layer|rms)_?norm|layer_norm::ln_[fb]wd_(?:\w*tuned_|general_)?kernel|"
    r"transformer_engine::normalization::\w*(?:ln|rmsnorm)_[fb]wd_(?:tuned|general)|cuApply(?:Layer|RMS)Norm|cuComputeGradInput"
)
"""Kernels over rows of cuDNN, of FlashAttention's and Apex' fast layer norm, of TransformerEngine and of Apex."""
BATCH_NORMS = ("aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_batch_norm_with_update")
GROUP_NORMS = ("aten::native_group_norm", "aten::native_group_norm_backward")


class _NormPass(NamedTuple):
    """A kernel of a norm with several: its number of passes over the input, and over a value per channel."""

    name: re.Pattern[str]
    input_passes: int
    channel_passes: int = 0
    part: str | None = None


NORM_PASSES = (
    # PyTorch's own batch norm (ATen/native/cuda/Normalization.cuh), with separate kernels for [N, H, W, C].
    _NormPass(re.compile(r"batch_norm_collect_statistics(?!_channels_last)"), 1, part=SUMS_PART),
    _NormPass(re.compile(r"batch_norm_collect_statistics"), 1),
    _NormPass(re.compile(r"batch_norm_transform_input"), 2, part=SCALING_PART),
    _NormPass(re.compile(r"batch_norm_backward_reduce(?!_kernel_channels_last|_channels_last)"), 2, part=SUMS_PART),
    _NormPass(re.compile(r"batch_norm_backward_reduce"), 2),
    _NormPass(re.compile(r"batch_norm_backward_elemt"), 3, part=SCALING_PART),
    _NormPass(re.compile(r"batch_norm_backward_kernel"), 3, part=SUMS_PART),
    _NormPass(re.compile(r"batch_norm_calc_invstd"), 0, 2),
    # aiter's group norm: one kernel for the sums over the input, one for the scaling.
    _NormPass(re.compile(r"groupnorm_kernel_dispatch_down"), 1),
    _NormPass(re.compile(r"groupnorm_kernel_dispatch_up"), 2),
    # Layer norm's backward pass: reads the input and the output's gradient, and writes little. The template is
    # PyTorch's kernel since 2.7: a few blocks of many threads go down the columns.
    _NormPass(re.compile(r"GammaBetaBackwardCUDAKernelTemplate"), 2, part=COLUMN_SUMS_PART),
    _NormPass(re.compile(r"GammaBeta", re.IGNORECASE), 2),
)
MOMENTS_PASS = _NormPass(re.compile(r"RowwiseMoments"), 1, part=SUMS_PART)
"""Moments of group norm, with a block per group (ATen/native/cuda/group_norm_kernel.cu)."""
GROUP_NORM_PASSES = (
    MOMENTS_PASS,
    _NormPass(re.compile(r"ComputeInternalGradients"), 2, part=SUMS_PART),
    _NormPass(re.compile(r"FusedParams|GammaBetaBackward"), 0, 2),
)
RUNNING_STATISTICS_PASS = _NormPass(re.compile(r"unrolled_elementwise_kernel_for_multi_outputs"), 0, 7)
"""Runs after a batch norm's sums: reads the sums and the running statistics of each channel, writes these and the
deviation (batch_norm_update_stats_and_invert in ATen/native/cuda/Normalization.cu)."""
ELEMENTWISE_PASS = _NormPass(re.compile(r"elementwise_kernel"), 0, 2)
"""Elementwise kernel of a group norm: computes values per channel, or the scaling if its grid has room for the
input."""
GROUPS_POSITION = 6
"""Position of a group norm's number of groups."""

CHANNELS_FIRST_OP = re.compile(r"group_norm|instance_norm")
"""Ops on [N, C, ...] that treat each sample by itself."""
NORMALISED_SHAPE_POSITION = {
    **dict.fromkeys(("aten::layer_norm", "aten::native_layer_norm", "aten::_fused_rms_norm"), 1),
    **dict.fromkeys(("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward"), 2),
}
"""Position of the normalised shape, the last axes of the input, by op."""
PARAMETER_BYTES = 4
"""Bytes of sums and factors per channel, which are fp32."""


@op(
    "aten::cudnn_batch_norm", "aten::miopen_batch_norm", *BATCH_NORMS,
    "aiter::rms_norm", "aiter::rmsnorm2d_fwd", "aiter::layer_norm", "aiter::layernorm2d_fwd", family="norm",
)  # fmt: skip
@other_ops_of("norm")
def compute_traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the traffic of a norm: every input read once, one output like the largest written."""
    largest = find_largest(signature.tensors)
    bytes_ = sum_bytes(signature.tensors, item_bytes) + largest.numel * largest.get_item_bytes(item_bytes)
    shape = _merge_to_rows(signature, largest.shape)
    return build_traffic_columns(shape, flops=FLOPS_PER_ELEMENT * largest.numel, bytes_=bytes_)


def _merge_to_rows(signature: Signature, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Merge all axes of ``shape`` that a norm works over into one; for a group norm those of a channel."""
    if "batch_norm" in signature.op and len(shape) > 1:
        return shape[1], math.prod(shape) // max(shape[1], 1)
    if CHANNELS_FIRST_OP.search(signature.op):
        return (math.prod(shape[:2]), math.prod(shape[2:])) if len(shape) > 2 else shape
    axes = signature.get_value(NORMALISED_SHAPE_POSITION.get(signature.op, -1))
    return (*shape[: -len(axes)], math.prod(shape[-len(axes) :])) if isinstance(axes, list) and axes else shape


def compute_partial_norm(signature: Signature, kernel: str, item_bytes: int, room: int | None = None) -> Columns | None:
    """Compute the work of a kernel that does a part of a norm; ``None`` for one that does all of it.

    ``item_bytes`` count where the signature has no type; ``room`` is how many elements the kernel's threads can take at
    most.
    """
    found = next((one for one in _list_passes(signature.op) if one.name.search(kernel)), None)
    if found is None or not signature.tensors:
        return None
    largest = find_largest(signature.tensors)
    if found is ELEMENTWISE_PASS and (room is None or room >= largest.numel):
        return {**(compute_traffic(signature, item_bytes) or {}), "part": SCALING_PART}
    channels = math.prod(largest.shape[:2] if signature.op in GROUP_NORMS else largest.shape[1:2])
    values = found.input_passes * largest.numel + found.channel_passes * channels
    bytes_ = found.input_passes * largest.numel * largest.get_item_bytes(item_bytes)
    shape = _merge_to_pass_rows(signature, found, largest.shape) if found.input_passes else (channels, 1)
    columns = build_traffic_columns(
        shape, flops=2 * values, bytes_=bytes_ + found.channel_passes * channels * PARAMETER_BYTES
    )
    return {**columns, "part": found.part}


def classify_row_norm(op: str, kernel: str) -> str | None:
    """Classify a kernel of PyTorch's own norms over rows, or of a library's; ``None`` for any other kernel."""
    if LIBRARY_KERNELS.search(kernel):
        return LIBRARY_PART
    if not ROW_KERNELS.search(kernel):
        return None
    return SQUARES_PART if "rms_norm" in op else ROWS_PART


def _list_passes(op: str) -> tuple[_NormPass, ...]:
    if op in GROUP_NORMS:
        return (*GROUP_NORM_PASSES, ELEMENTWISE_PASS)
    return (*NORM_PASSES, RUNNING_STATISTICS_PASS) if op in BATCH_NORMS else NORM_PASSES


def _merge_to_pass_rows(signature: Signature, kernel: _NormPass, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Reshape to the rows that a kernel works over: a group norm's moments work over its groups."""
    groups = signature.get_value(GROUPS_POSITION) if kernel is MOMENTS_PASS else None
    if not isinstance(groups, int) or groups < 1:
        return _merge_to_rows(signature, shape)
    return shape[0] * groups, math.prod(shape[1:]) // groups


op(
    "_C::rms_norm", "sgl_kernel::rmsnorm", "sgl_kernel::gemma_rmsnorm", "aiter::rmsnorm", "aiter::add_rmsnorm",
    "_C::rms_norm_static_fp8_quant", "aiter::rmsnorm2d_fwd_with_add", "aiter::rmsnorm2d_fwd_with_add_ck",
    "aiter::layernorm2d_fwd_with_add", family="norm",
)(make_single_pass(FLOPS_PER_ELEMENT))  # fmt: skip
op("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "sgl_kernel::gemma_fused_add_rmsnorm", family="norm")(
    make_read_write(both=(0, 1), read=(2,))
)
op("_C::fused_add_rms_norm_static_fp8_quant", family="norm")(make_read_write(both=(2,), read=(1, 3), write=(0,)))
# The last input, if given, is added in place.
op("_C::rms_norm_dynamic_per_token_quant", "_C::rms_norm_per_block_quant", family="norm")(
    make_read_write(both=(6,), read=(1, 2), write=(0, 3))
)
op("_C::fused_qk_norm_rope", family="norm")(make_read_write(both=(0,)))


SOFTMAX_FLOPS_PER_ELEMENT = 5


@other_ops_of("softmax")
def compute_softmax_traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the traffic of a softmax: every input read once, one output like the largest written.

    Backward ops until 2021 also took the forward pass's input, but only read its type.
    """
    backward = signature.op.endswith("_backward_data")
    tensors = [*signature.get_tensors(0), *signature.get_tensors(1)] if backward else signature.tensors
    if not tensors:
        return None
    largest = find_largest(tensors)
    bytes_ = sum_bytes(tensors, item_bytes) + largest.numel * largest.get_item_bytes(item_bytes)
    return build_traffic_columns(largest.shape, flops=SOFTMAX_FLOPS_PER_ELEMENT * largest.numel, bytes_=bytes_)


op("_moe_C::topk_softmax", "sgl_kernel::topk_softmax", family="softmax")(make_single_pass(5))
