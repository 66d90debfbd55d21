"""Make PyTorch on tensors without data choose what it would choose on CUDA.

The functions that models call are replaced for a while. A mode catches those that a model imported by their name; what
a function like ``multi_head_attention_forward`` calls itself, it doesn't see.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from tracekit.capturing.recurrent_layers import make_recurrence
from tracekit.capturing.state_space_layers import SCAN, list_scans, scan
from tracekit.errors import CaptureError
from tracekit.messages import models as messages

HALF = (
    *((functional, name) for name in ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d")),
    *((torch, name) for name in ("conv1d", "conv2d", "conv3d", "matmul", "mm", "bmm", "baddbmm", "addmm", "einsum")),
    *((Tensor, name) for name in ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm")),
)
SINGLE = (
    *((functional, name) for name in ("layer_norm", "softmax", "log_softmax", "cross_entropy", "nll_loss", "mse_loss")),
    *((owner, name) for owner in (torch, Tensor) for name in ("softmax", "log_softmax")),
)
"""What autocast runs in half and in single precision: of its lists (PyTorch's autocast_mode.cpp), what models call
most."""
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""What cuDNN runs in a few kernels of its own, and PyTorch elsewhere in several for each step in time."""
HF_MASKS, HF_PACKED = "transformers.masking_utils", "find_packed_sequence_indices"
"""Module of transformers, and its function that reads whether several sequences are packed into one."""
MAX_FLASH_WIDTH = 256
"""Of a head, in FlashAttention 2."""
FUSED_DIMS = 4
"""Of the queries that PyTorch's fused kernels take: sequences, heads, tokens, width (sdp_utils_cpp.h,
``check_tensor_shapes``)."""


@contextmanager
def choose_as_cuda(autocast: torch.dtype | None = None, attention: str | None = None) -> Iterator[list[str]]:
    """Run attention by a fused kernel and dropout in one, which PyTorch makes of several ops where there is no GPU.

    Args:
        autocast: Type of mixed precision, as torch.autocast has it on CUDA; that one wants a GPU. None for none.
        attention: How it runs attention: 'eager', 'sdpa' or 'flash'; None as PyTorch chooses.

    Yields:
        The fused functions that were called.
    """
    called: list[str] = []
    attend_so = {"eager": attend_plainly, "flash": attend_by_flash}.get(attention or "", attend)

    def attend_cast(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        cast = (_cast(one, autocast) for one in (query, key, value)) if autocast else (query, key, value)
        called.append("scaled_dot_product_attention")
        return attend_so(*cast, *args, **kwargs)

    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (functional, "scaled_dot_product_attention", attend_cast),
        (functional, "dropout", drop_out),
        (functional, "rms_norm", _norm_rows),
        *((torch._VF, name, make_recurrence(name, lambda x: _cast(x, autocast or x.dtype))) for name in RECURRENT),
    ]
    for places, dtype in ((HALF, autocast), (SINGLE, torch.float32)) if autocast else ():
        replaced.extend((owner, name, _call_in(getattr(owner, name), dtype)) for owner, name in places)
    mode = _Redirect({getattr(owner, name): function for owner, name, function in replaced})
    with ExitStack() as patches:
        for owner, name, function in replaced:
            patches.enter_context(patch.object(owner, name, function))
        if masking := sys.modules.get(HF_MASKS):
            patches.enter_context(patch.object(masking, HF_PACKED, lambda *args, **kwargs: None))
        for module in list_scans():
            patches.enter_context(patch.object(module, SCAN, scan))
        patches.enter_context(mode)
        yield called


class _Redirect(TorchFunctionMode):
    """Mode that calls other functions instead of some.

    Args:
        replaced: Functions, and what is called instead.
    """

    def __init__(self, replaced: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
        super().__init__()
        self._replaced = replaced

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, or the one instead."""
        return self._replaced.get(func, func)(*args, **(kwargs or {}))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute attention by FlashAttention in half precision without a mask, else by the memory-efficient kernel.

    Queries of another number of dimensions, such as those of windows apart (NesT, Hiera), have neither.
    """
    if query.dim() != FUSED_DIMS:
        return attend_by_products(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if _suits_flash(query, value, attn_mask):
        return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[
            0
        ]
    key, value = _share_heads(query, key, value, enable_gqa=enable_gqa)
    if attn_mask is not None:
        mask = torch.empty_like(attn_mask, dtype=query.dtype) if attn_mask.dtype is torch.bool else attn_mask
        attn_mask = mask.expand(*query.shape[:-1], key.shape[-2])
    needs_grad = torch.is_grad_enabled() and query.requires_grad
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, needs_grad, dropout_p, is_causal, scale=scale
    )[0]


def _suits_flash(query: Tensor, value: Tensor, attn_mask: Tensor | None) -> bool:
    """Return whether FlashAttention takes such tensors."""
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    return (
        query.dim() == FUSED_DIMS
        and is_half
        and attn_mask is None
        and query.shape[-1] == value.shape[-1] <= MAX_FLASH_WIDTH
    )


def attend_by_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute attention by PyTorch's math backend, from PyTorch 2.5 on: in fp32 whatever it is given.

    As ``_scaled_dot_product_attention_math`` and ``_safe_softmax`` do (aten/src/ATen/native), whose rows may be masked
    as a whole and which also returns the weights.
    """
    root = (scale or query.shape[-1] ** -0.5) ** 0.5
    key, value = _share_heads(query, key, value, enable_gqa=enable_gqa)
    wide_query, wide_key, wide_value = (one.to(torch.float32) for one in (query, key, value))
    # By the operators themselves: the functions cast to half precision under autocast, which the backend runs without.
    scores = torch.ops.aten.matmul(wide_query * root, wide_key.transpose(-2, -1) * root)
    if is_causal:
        attn_mask = torch.empty(query.shape[-2], key.shape[-2], dtype=scores.dtype, device=scores.device)
    if attn_mask is not None:
        scores = scores.add_(attn_mask)
    masked = scores.eq(-torch.inf).all(-1, keepdim=True)
    weights = torch.where(masked, 0.0, torch.ops.aten._softmax(scores, -1, False))
    weights = drop_out(weights, dropout_p)
    mixed = torch.ops.aten.matmul(weights, wide_value)
    if query.dtype is not torch.float32:
        weights.to(query.dtype)
    return mixed.to(query.dtype)


def attend_by_flash(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *args: Any, **kwargs: Any
) -> Tensor:
    """Compute attention by FlashAttention.

    Raises:
        CaptureError: It can't.
    """
    if not _suits_flash(query, value, attn_mask):
        raise CaptureError(messages.ATTENTION_NOT_FLASH(width=MAX_FLASH_WIDTH))
    return attend(query, key, value, attn_mask, *args, **kwargs)


def attend_plainly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute attention by plain products and a softmax, as models did before there were fused kernels."""
    key, value = _share_heads(query, key, value, enable_gqa=enable_gqa)
    scores = torch.matmul(query, key.transpose(-2, -1)) * (scale or query.shape[-1] ** -0.5)
    if is_causal:
        attn_mask = torch.empty(query.shape[-2], key.shape[-2], dtype=query.dtype, device=query.device)
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask, 0.0) if attn_mask.dtype is torch.bool else scores + attn_mask
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(drop_out(weights, dropout_p), value)


def _share_heads(query: Tensor, key: Tensor, value: Tensor, *, enable_gqa: bool) -> tuple[Tensor, Tensor]:
    """Return keys and values with as many heads as the queries."""
    if not enable_gqa or key.shape[-3] == query.shape[-3]:
        return key, value
    shared = query.shape[-3] // key.shape[-3]
    return key.repeat_interleave(shared, -3), value.repeat_interleave(shared, -3)


def _norm_rows(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Compute an RMS norm as a layer norm, which goes through as many bytes: only CUDA has a kernel for the former."""
    return torch.native_layer_norm(x, list(normalized_shape), weight, None, eps or 1e-5)[0]


def drop_out(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop elements out in one kernel."""
    del inplace
    return torch.native_dropout(x, p, train=True)[0] if training and 0 < p < 1 else x


def _call_in(function: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    """Return a function with its floating-point inputs cast to a type."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = tree_map(lambda x: _cast(x, dtype), (args, kwargs))
        return function(*given[0], **given[1])

    return call


def _cast(x: Any, dtype: torch.dtype) -> Any:
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x
