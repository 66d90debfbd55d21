"""Which kernels an op launches on CUDA, by names that tell what they do.

The rules are what traces of eager PyTorch show. A name of the right family stands for all kernels of cuDNN and cuBLAS,
whose choice no shape tells.
"""

import re
from typing import Any

import torch
from torch import Tensor

PLAIN = ("vectorized_elementwise_kernel",)
PLACED = ("elementwise_kernel",)
"""Of tensors that don't lie as they are gone through."""

# How CUDA's kernels of an op are called, as far as their names tell what they do; the first that fits.
NAMES = (
    (r"^convolution_backward$", ("dgrad_implicit_gemm", "wgrad_implicit_gemm")),
    (r"^convolution$", ("fprop_implicit_gemm",)),
    (r"^(linalg_vector_)?norm$", ("reduce_kernel",)),
    (r"^(addbmm|baddbmm|bmm|addmm|mm|addmv|mv|dot|_int_mm|_scaled_mm|(_scaled)?_grouped_mm)$", ("gemm",)),
    (r"^(_?linalg_(?!vector_norm)|_?cdist|_?fft|triangular_solve|cholesky|lu_)", ("library_kernel",)),
    (r"flash_attention_backward", ("flash_bwd_kernel",)),
    (r"flash_attention", ("flash_fwd_kernel",)),
    (r"efficient_attention", ("fmha_cutlassF",)),
    (r"_foreach|_fused_", ("multi_tensor_apply_kernel",)),
    (r"(native_layer|_fused_rms)_norm_backward", ("layer_norm_grad_input_kernel", "GammaBetaBackwardCUDAKernel")),
    (r"native_batch_norm_backward", ("bn_bw_1C11_kernel_new",)),
    (r"native_batch_norm", ("bn_fw_tr_1C11_kernel_NCHW",)),
    (r"native_group_norm", ("RowwiseMomentsCUDAKernel", "ComputeFusedParamsCUDAKernel", "elementwise_kernel")),
    (r"native_layer_norm|_fused_rms_norm", ("vectorized_layer_norm_kernel",)),
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
    (r"^cat$", ("CatArrayBatchedCopy",)),
    (r"^(_to_copy|clone|copy_)$", ("direct_copy_kernel",)),
    (r"", PLAIN),
)
TF32 = "tf32_"
WEIGHT, TRAINING = 1, 5
"""Which argument of a batch norm is its weight, and which tells that it takes the batch's own statistics."""
PIXELS = 5
"""Of each channel, of a group norm."""
BIAS, TRANSPOSED, GROUPS = 2, 6, 8
"""Of a convolution."""
MEAN, REDUCTION = 1, 2
"""Of a loss: what it becomes of its elements, and which argument tells."""


def list_kernel_names(op: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    """List the kernels that an op launches with its arguments."""
    names = next(names for pattern, names in NAMES if re.search(pattern, op))
    if op == "native_batch_norm" and not given[TRAINING]:
        return ("bn_fw_inf_1C11_kernel_NCHW",)
    if op == "native_batch_norm" and given[WEIGHT] is None:
        # cuDNN wants a weight.
        return ("batch_norm_collect_statistics_kernel", "batch_norm_transform_input_kernel")
    if op == "native_group_norm" and given[PIXELS] == 1:
        return names[::2]
    if op == "convolution" and is_depthwise(given):
        return ("conv_depthwise2d_forward_kernel",)
    if names is PLAIN:
        return names if _is_unbroadcast(given) else PLACED
    if op != "convolution_backward":
        return names
    return tuple(name for name, wanted in zip(names, given[-1], strict=False) if wanted)


def _is_unbroadcast(given: tuple[Any, ...]) -> bool:
    """Return whether all tensors have one shape: none is broadcast."""
    return len({arg.shape for arg in given if isinstance(arg, Tensor) and arg.dim()}) < 2


def is_depthwise(convolution: tuple[Any, ...]) -> bool:
    """Return whether PyTorch has a kernel of its own for a convolution of fp32."""
    x, groups = convolution[0], convolution[GROUPS]
    return x.dtype is torch.float32 and not convolution[TRANSPOSED] and groups > 1 and x.shape[1] == groups
