"""Which kernels an op launches on CUDA, by names that tell what they do.

The rules are what traces of eager PyTorch show, and its sources say. A name of the right family stands for all kernels
of cuDNN and cuBLAS, whose choice no shape tells.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tracekit.capturing.recurrent_layers import name_recurrent_kernels
from tracekit.capturing.state_space_layers import KERNELS as SCANS
from tracekit.capturing.table_lookups import name_fbgemm_kernels
from tracekit.workload.ops.embedding import TABLE_ROWS_ARGUMENT

PLAIN = ("vectorized_elementwise_kernel",)
PLACED = ("elementwise_kernel",)
"""Of tensors that don't lie as they are gone through."""

# How CUDA's kernels of an op are called, as far as their names tell what they do; the first that fits.
NAMES = (
    (r"^(linalg_vector_)?norm$", ("reduce_kernel",)),
    (
        r"^(addbmm|baddbmm|bmm|addmm|mm|addmv|mv|dot|_int_mm|_scaled_mm|(_scaled)?_grouped_mm|tracekit::quantised_\w+)$",
        ("gemm",),
    ),
    (r"^(_?linalg_(?!vector_norm)|_?cdist|_?fft|triangular_solve|cholesky|lu_)", ("library_kernel",)),
    (r"efficient_attention_backward", ("fmha_cutlassB",)),
    (r"efficient_attention", ("fmha_cutlassF",)),
    (r"(native_layer|_fused_rms)_norm_backward", ("layer_norm_grad_input_kernel", "GammaBetaBackwardCUDAKernel")),
    (r"native_layer_norm|_fused_rms_norm", ("vectorized_layer_norm_kernel",)),
    (r"_foreach|_fused_", ("multi_tensor_apply_kernel",)),
    (r"native_batch_norm_backward", ("bn_bw_1C11_kernel_new",)),
    (r"native_batch_norm", ("bn_fw_tr_1C11_kernel_NCHW",)),
    (r"native_group_norm", ("RowwiseMomentsCUDAKernel", "ComputeFusedParamsCUDAKernel", "elementwise_kernel")),
    (r"index_put", ("indexing_backward_kernel",)),
    (r"norm", ("norm_kernel",)),
    (r"softmax", ("softmax_kernel",)),
    (r"embedding", ("embedding_kernel",)),
    (r"max_pool", ("max_pool_forward_nchw",)),
    (r"avg_pool", ("avg_pool2d_out_cuda_frame",)),
    (r"^(mean|sum|prod|var|std|any|all|max|min|amax|amin|argmax|argmin|nll_loss.*)$", ("reduce_kernel",)),
    (r"^(cumsum|cumprod)$", ("tensor_kernel_scan",)),
    (r"^(triu|tril)$", ("triu_tril_kernel",)),
    (r"^flip$", ("flip_kernel",)),
    (r"^(_to_copy|clone|copy_)$", ("direct_copy_kernel",)),
    (r"^tracekit::quantise$", ("cast_transpose_kernel",)),
    (r"", PLAIN),
)
TF32 = "tf32_"
WEIGHT, TRAINING = 1, 5
"""Which argument of a batch norm is its weight, and which tells that it takes the batch's own statistics."""
PIXELS = 5
"""Of each channel, of a group norm."""
BIAS, TRANSPOSED, GROUPS = 2, 6, 8
"""Of a convolution."""
GRADIENT_GROUPS = 9
"""Of its backward pass."""
STRIDE = 3
BOTH_GRADIENTS = (True, True, False)
"""Of input and weight: what a convolution's backward pass computes where a recording doesn't tell."""
IMAGE_DIMS = 4
MAX_CUDNN_WIDTH = 128
"""Of a head, in cuDNN's attention."""
BAG_MODE, BAG_IS_SPARSE = 8, 9
"""Of the gradient of an embedding's bags."""
SUM, MEAN = 0, 1
MAX_UNSORTED_INDICES = 3072
"""Up to which one kernel adds up an embedding's gradient (aten/src/ATen/native/cuda/Embedding.cu)."""
BITS_PER_PASS, MAX_TILE_INDICES = 8, 2304
"""Of a radix sort of 64-bit keys, and up to how many of them one block sorts (CUB's policies)."""
TO_CHANNELS_LAST, FROM_CHANNELS_LAST = "nchwToNhwcKernel", "nhwcToNchwKernel"
"""Kernels with which cuDNN changes how an image lies, as its products on matrix units want it."""


def list_kernel_names(op: str, given: Sequence[Any]) -> tuple[str, ...]:
    """List the kernels that an op launches with its arguments."""
    if op.startswith("fbgemm::"):
        return name_fbgemm_kernels(op, given)
    if op in SCANS:
        return SCANS[op]
    if op in BY_ARGUMENTS:
        return BY_ARGUMENTS[op](given)
    names = next(names for pattern, names in NAMES if re.search(pattern, op))
    if names is PLAIN:
        return names if _lie_alike(given) else PLACED
    return names


def _name_batch_norm(given: Sequence[Any]) -> tuple[str, ...]:
    if not given[TRAINING]:
        return ("bn_fw_inf_1C11_kernel_NCHW",)
    if given[WEIGHT] is None:
        # cuDNN wants a weight.
        return ("batch_norm_collect_statistics_kernel", "batch_norm_transform_input_kernel")
    return ("bn_fw_tr_1C11_kernel_NCHW",)


def _name_group_norm(given: Sequence[Any]) -> tuple[str, ...]:
    names = ("RowwiseMomentsCUDAKernel", "ComputeFusedParamsCUDAKernel", "elementwise_kernel")
    return names[::2] if given[PIXELS] == 1 else names


def _name_convolution(given: Sequence[Any]) -> tuple[str, ...]:
    if is_depthwise(given):
        return ("conv_depthwise2d_forward_kernel",)
    names = ("fprop_implicit_gemm",)
    converted = _is_converted(given[0], given[1], given[GROUPS] or 1) and not _is_pointwise(given[1])
    return (TO_CHANNELS_LAST, *names, FROM_CHANNELS_LAST) if converted else names


def _name_convolution_backward(given: Sequence[Any]) -> tuple[str, ...]:
    of_input, of_weight, *_ = given[-1] or BOTH_GRADIENTS
    converted = _is_converted(given[1], given[2], given[GRADIENT_GROUPS] or 1)
    before, after = ((TO_CHANNELS_LAST,), (FROM_CHANNELS_LAST,)) if converted else ((), ())
    names = (*before, "dgrad_implicit_gemm", *after) if of_input else ()
    # The gradient of the weight needs both the result's gradient and the input.
    return (*names, *before, *before, "wgrad_implicit_gemm") if of_weight else names


FLASH_2 = {
    "cudnn_generated_fort_native_sdpa_flash_fprop": "flash_fwd_kernel",
    "cudnn_generated_fort_native_sdpa_flash_bprop": "flash_bwd_kernel",
}
"""cuDNN's attention -> FlashAttention 2's, which PyTorch chooses on Hopper and Blackwell before 2.10 (aten/src/ATen/
native/transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention)."""


def name_flash_attention(kernels: Sequence[str]) -> tuple[str, ...]:
    """Name FlashAttention 2's kernels in place of cuDNN's."""
    return tuple(FLASH_2.get(name, name) for name in kernels)


def _name_attention(given: Sequence[Any]) -> tuple[str, ...]:
    """Name what runs in half precision without a mask: cuDNN's kernel on Hopper and Blackwell.

    Elsewhere it is FlashAttention 2, which takes about as long.
    """
    wide = given[0].shape[-1] > MAX_CUDNN_WIDTH
    return ("flash_fwd_kernel",) if wide else ("cudnn_generated_fort_native_sdpa_flash_fprop",)


def _name_attention_backward(given: Sequence[Any]) -> tuple[str, ...]:
    wide = given[1].shape[-1] > MAX_CUDNN_WIDTH
    return ("flash_bwd_kernel",) if wide else ("cudnn_generated_fort_native_sdpa_flash_bprop",)


def _name_join(given: Sequence[Any]) -> tuple[str, ...]:
    parts = given[0] or ()
    whole = all(isinstance(part, Tensor) and part.is_contiguous() for part in parts)
    return ("CatArrayBatchedCopy_vectorized",) if whole else ("CatArrayBatchedCopy",)


def _name_table_gradient(given: Sequence[Any]) -> tuple[str, ...]:
    """Name the kernels of an embedding's gradient: one for few indices, else those that sort them and sum them up."""
    _, indices, rows = given[:3]
    if indices.numel() <= MAX_UNSORTED_INDICES:
        return ("embedding_backward_feature_kernel",)
    return _name_sorted_gradient(indices.numel(), rows.bit_length(), "compute_grad_weight")


def _name_bag_gradient(given: Sequence[Any]) -> tuple[str, ...]:
    """Name the kernels of the gradient of an embedding's sums or means; all bits of the indices are sorted by."""
    indices = given[1]
    if given[BAG_MODE] not in (SUM, MEAN) or given[BAG_IS_SPARSE]:
        return ("embedding_kernel",)
    return _name_sorted_gradient(indices.numel(), 8 * indices.element_size(), "compute_grad_weight_bags")


def _name_sorted_gradient(indices: int, bits: int, summing: str) -> tuple[str, ...]:
    passes = -(-bits // BITS_PER_PASS)
    sorting: tuple[str, ...] = ("DeviceRadixSortSingleTileKernel",)
    if indices > MAX_TILE_INDICES:
        sorting = ("DeviceRadixSortHistogramKernel", "DeviceRadixSortExclusiveSumKernel")
        sorting += ("DeviceRadixSortOnesweepKernel",) * passes
    return (
        "elementwise_kernel_with_index",
        *sorting,
        *("DeviceCompactInitKernel", "DeviceUniqueByKeySweepKernel", "krn_partials_per_segment"),
        *("DeviceScanInitKernel", "DeviceScanKernel", "compute_num_of_partial_segments"),
        *("krn_partial_segment_offset", summing, "sum_and_scatter"),
    )


def _name_index_gradient(given: Sequence[Any]) -> tuple[str, ...]:
    """Name the kernel that adds to elements, where each axis behind the first index has one, or to rows."""
    target, indices = given[:2]
    each = len(indices) == target.dim() and indices[-1] is not None
    return ("indexing_backward_kernel_stride_1",) if each else ("indexing_backward_kernel",)


def _name_nothing(given: Sequence[Any]) -> tuple[str, ...]:
    """Name no kernel: other ops that this one calls launch them."""
    del given
    return ()


BY_ARGUMENTS: dict[str, Callable[[Sequence[Any]], tuple[str, ...]]] = {
    "native_batch_norm": _name_batch_norm,
    "native_group_norm": _name_group_norm,
    "convolution": _name_convolution,
    "convolution_backward": _name_convolution_backward,
    "_scaled_dot_product_flash_attention": _name_attention,
    "_scaled_dot_product_flash_attention_backward": _name_attention_backward,
    "cat": _name_join,
    "stack": _name_join,
    "index_put": _name_index_gradient,
    "embedding_dense_backward": _name_table_gradient,
    "_embedding_bag_backward": _name_bag_gradient,
    "_cudnn_rnn": partial(name_recurrent_kernels, backward=False),
    "_cudnn_rnn_backward": partial(name_recurrent_kernels, backward=True),
    "select_backward": _name_nothing,
    "slice_backward": _name_nothing,
}
"""Ops whose kernels depend on more than their name."""


def _lie_alike(given: Sequence[Any]) -> bool:
    """Return whether all tensors have one shape and lie alike without gaps: none is broadcast or strided."""
    tensors = [arg for arg in given if isinstance(arg, Tensor) and arg.dim()]
    if not tensors:
        return True
    shapes, strides = {one.shape for one in tensors}, {one.stride() for one in tensors}
    return len(shapes) < 2 and len(strides) < 2 and _has_no_gaps(tensors[0])


def _has_no_gaps(tensor: Tensor) -> bool:
    """Return whether a tensor's elements fill the memory between its first and last one."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _lie_by_channel(image: Tensor, weight: Tensor) -> bool:
    """Return whether a convolution's image and weight lie channel after channel, rather than pixel after pixel."""
    if image.dim() != IMAGE_DIMS or image.dtype is torch.float64:
        return False
    return not any(lies_by_pixel(one) for one in (image, weight))


def _is_converted(image: Tensor, weight: Tensor, groups: int) -> bool:
    """Return whether cuDNN changes how a convolution's image lies before its product, and its result after it.

    Where each channel is convolved by itself there is no product: kernels for either layout compute it. So they do
    where groups aren't a power of two wide: in timm's tables channels first take no longer there.
    """
    width = image.shape[1] // groups
    has_kernels = groups > 1 and (width == 1 or width & (width - 1) != 0)
    return not has_kernels and _lie_by_channel(image, weight)


def _is_pointwise(weight: Tensor) -> bool:
    """Return whether a convolution's window is one pixel: its forward pass is a product of either layout.

    By timm's tables of the same GPU and release with either layout (RTX 3090 and 4090, PyTorch 2.4), conversions of
    wider windows take 0.8 and 0.9 of what they are predicted to, those of single pixels would 0.3 and 0.2.
    """
    return math.prod(weight.shape[2:]) == 1


def lies_by_pixel(image: Tensor) -> bool:
    """Return whether an image or a weight has its channels side by side in memory (``torch.channels_last``).

    One that lies in both ways, such as the weight of a 1 x 1 convolution, counts as one that hasn't.
    """
    by_pixel = image.dim() == IMAGE_DIMS and image.is_contiguous(memory_format=torch.channels_last)
    return by_pixel and not image.is_contiguous()


def is_depthwise(convolution: Sequence[Any]) -> bool:
    """Return whether PyTorch has a kernel of its own for a convolution of fp32."""
    x, groups = convolution[0], convolution[GROUPS]
    return x.dtype is torch.float32 and not convolution[TRANSPOSED] and (groups or 1) > 1 and x.shape[1] == groups


MEAN_LOSS, REDUCTION = 1, 2
"""Of a loss: what it becomes of its elements, and which argument tells."""
Following = tuple[str, tuple[Any, ...]]
"""An op and its arguments; tensors are on the meta device."""


def list_following_ops(op: str, given: Sequence[Any], result: Any) -> list[Following]:
    """List the ops that an op calls itself on CUDA, where they have kernels of their own.

    ``result`` is what it returns; None where that isn't known.
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
    if (given[REDUCTION] if len(given) > REDUCTION else MEAN_LOSS) != MEAN_LOSS:
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
