"""Capture the kernels that a PyTorch program would launch on a GPU, from its ops on tensors without data."""

import json
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

TYPES = {
    torch.float32: "float",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int",
    torch.bool: "bool",
    torch.uint8: "unsigned char",
    torch.uint64: "unsigned long",
}

HALF = (
    functional.linear, functional.conv2d, torch.conv2d, functional.scaled_dot_product_attention,
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, torch.baddbmm, torch.addmm,
)  # fmt: skip
SINGLE = (functional.layer_norm, functional.softmax, Tensor.softmax, functional.log_softmax, functional.cross_entropy)
"""What autocast runs in half and in single precision, of what the stand-ins call."""

NO_KERNEL = re.compile(
    r"empty|view|detach|_local_scalar|profiler|"
    r"^(t|alias|diagonal|expand|permute|transpose|as_strided|select|slice|split|split_with_sizes|squeeze|unbind|unfold|"
    r"unsqueeze)$"
)

PLAIN = ("vectorized_elementwise_kernel",)
PLACED = ("elementwise_kernel",)
"""Of tensors that don't lie as they are gone through."""

# How CUDA's kernels of an op are called, as far as their names tell what they do; the first that fits.
NAMES = (
    (r"^convolution_backward$", ("dgrad_implicit_gemm", "wgrad_implicit_gemm")),
    (r"^convolution$", ("fprop_implicit_gemm",)),
    (r"^(linalg_vector_)?norm$", ("reduce_kernel",)),
    (r"^(mm|bmm|addmm|baddbmm)$", ("gemm",)),
    (r"flash_attention_backward", ("flash_bwd_kernel",)),
    (r"flash_attention", ("flash_fwd_kernel",)),
    (r"efficient_attention", ("fmha_cutlassF",)),
    (r"_foreach|_fused_", ("multi_tensor_apply_kernel",)),
    (r"(native_layer|_fused_rms)_norm_backward", ("layer_norm_grad_input_kernel", "GammaBetaBackwardCUDAKernel")),
    (r"native_batch_norm_backward", ("bn_bw_1C11_kernel_new",)),
    (r"native_batch_norm", ("bn_fw_tr_1C11_kernel_NCHW",)),
    (r"native_group_norm", ("RowwiseMomentsCUDAKernel", "ComputeFusedParamsCUDAKernel", "elementwise_kernel")),
    (r"native_layer_norm|_fused_rms_norm", ("vectorized_layer_norm_kernel",)),
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


@dataclass(frozen=True)
class Call:
    """An op's call with what the profiler would have noted of its inputs, and the kernels that it launches."""

    op: str
    dims: list[Any]
    types: list[str]
    concrete: list[str]
    kernels: tuple[str, ...]


class Autocast(TorchFunctionMode):
    """Mixed precision, as torch.autocast has it on CUDA; that one wants a GPU."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func`` with its inputs in the type of its precision."""
        wanted = self._dtype if func in HALF else torch.float32 if func in SINGLE else None

        def cast(x: Any) -> Any:
            return x.to(wanted) if isinstance(x, Tensor) and x.is_floating_point() else x

        if wanted is None:
            return func(*args, **(kwargs or {}))
        if func is functional.scaled_dot_product_attention:
            return torch.ops.aten._scaled_dot_product_flash_attention(*tree_map(cast, args))[0]
        return func(*tree_map(cast, args), **tree_map(cast, kwargs or {}))


class Capture(TorchDispatchMode):
    """Mode that notes each op that launches kernels.

    Args:
        tf32: Whether products of fp32 run in TF32.
    """

    def __init__(self, *, tf32: bool = False) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._tf32 = tf32

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and note ``func``."""
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if not NO_KERNEL.search(name):
            self.calls.append(self._call(func, name, args, result))
            self.calls.extend(_list_following_calls(name, args, result))
        return result

    def _call(self, func: Any, name: str, args: tuple[Any, ...], result: Any) -> Call:
        defaults = (argument.default_value for argument in func._schema.arguments[len(args) :])
        op, given = ("copy_", (result, *args)) if name in ("_to_copy", "clone") else (name, (*args, *defaults))
        return Call(
            f"aten::{op}",
            [_dims(arg) for arg in given],
            [_type(arg) for arg in given],
            [_concrete(arg) for arg in given],
            tuple(self._kernel(kernel, given) for kernel in _list_kernel_names(op, given)),
        )

    def _kernel(self, name: str, given: tuple[Any, ...]) -> str:
        single = next((arg.dtype for arg in given if isinstance(arg, Tensor)), None) is torch.float32
        return TF32 + name if self._tf32 and single and "gemm" in name else name


def _list_kernel_names(op: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    names = next(names for pattern, names in NAMES if re.search(pattern, op))
    if op == "native_batch_norm" and not given[TRAINING]:
        return ("bn_fw_inf_1C11_kernel_NCHW",)
    if op == "native_batch_norm" and given[WEIGHT] is None:
        # cuDNN wants a weight.
        return ("batch_norm_collect_statistics_kernel", "batch_norm_transform_input_kernel")
    if op == "native_group_norm" and given[PIXELS] == 1:
        return names[::2]
    if op == "convolution" and _is_depthwise(given):
        return ("conv_depthwise2d_forward_kernel",)
    if names is PLAIN:
        return names if _is_unbroadcast(given) else PLACED
    if op != "convolution_backward":
        return names
    return tuple(name for name, wanted in zip(names, given[-1], strict=False) if wanted)


def _is_unbroadcast(given: tuple[Any, ...]) -> bool:
    """Return whether all tensors have one shape: none is broadcast."""
    return len({arg.shape for arg in given if isinstance(arg, Tensor) and arg.dim()}) < 2


def _list_following_calls(op: str, args: tuple[Any, ...], result: Any) -> list[Call]:
    """Return ops that an op calls itself on CUDA: a convolution's bias comes after it, losses are summed after it."""
    if op == "convolution" and args[BIAS] is not None and not _is_depthwise(args):
        dims = [_dims(result), [1, len(args[BIAS]), *[1] * (result.dim() - 2)], []]
        return [Call("aten::add_", dims, [_type(result)] * 2 + ["Scalar"], ["", "", "1"], PLACED)]
    if op in ("smooth_l1_loss", "huber_loss") and (args[REDUCTION] if len(args) > REDUCTION else MEAN) == MEAN:
        shape = list(torch.broadcast_shapes(args[0].shape, args[1].shape))
        return [Call("aten::mean", [shape], [_type(result)], [""], ("reduce_kernel",))]
    return []


def _is_depthwise(convolution: tuple[Any, ...]) -> bool:
    """Return whether PyTorch has a kernel of its own for a convolution of fp32."""
    x, groups = convolution[0], convolution[GROUPS]
    return x.dtype is torch.float32 and not convolution[TRANSPOSED] and groups > 1 and x.shape[1] == groups


def _dims(arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return list(arg.shape)
    tensors = isinstance(arg, list | tuple) and any(isinstance(item, Tensor) for item in arg)
    return [_dims(item) for item in arg] if tensors else []


def _type(arg: Any) -> str:
    if isinstance(arg, Tensor):
        return TYPES[arg.dtype]
    if isinstance(arg, list | tuple):
        return next((TYPES[item.dtype] for item in arg if isinstance(item, Tensor)), "ScalarList")
    return "" if arg is None else "Scalar"


def _concrete(arg: Any) -> str:
    tensors = any(isinstance(item, Tensor) for item in tree_leaves(arg))
    return "" if arg is None or tensors else json.dumps(arg, default=str)
