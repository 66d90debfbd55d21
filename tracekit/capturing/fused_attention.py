"""Attention of models of transformers by one kernel, as training frameworks have it where transformers has none.

GPT-OSS has a learned logit beside the scores (a sink), and sees a window of the sequence in every second layer. Its
kernels in cuDNN and Transformer Engine take both; transformers computes it by plain products. A sink costs nothing; a
window of ``w`` tokens is as much work as blocks of ``w`` queries that each see ``w`` keys::

    sequence    | block 0 | block 1 | block 2 |       heads x blocks, each w x w, for sequence x window
"""

from typing import Any

import torch
from torch import Tensor, nn

NAME = "tracekit"
"""Under which transformers knows it."""


def fuse_attention(model: Any) -> bool:
    """Make a model of transformers compute its attention by one kernel; return whether that is possible."""
    if not getattr(model, "_supports_attention_backend", False):
        return False
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attend_fused)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, _build_no_mask)
    model.config._attn_implementation = NAME
    return True


def _build_no_mask(*sizes: Any, **options: Any) -> None:
    """Return no mask: the kernel knows it."""


def attend_fused(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute the attention of a layer, with the arguments and results that transformers' functions have."""
    attend, tokens = torch.nn.functional.scaled_dot_product_attention, query.shape[-2]
    is_causal = getattr(module, "is_causal", True)
    if sliding_window and sliding_window < tokens and tokens % sliding_window == 0:
        query, key, value = (
            one.reshape(one.shape[0], -1, sliding_window, one.shape[-1]) for one in (query, key, value)
        )
        is_causal = False
    seen = attend(query, key, value, dropout_p=dropout, is_causal=is_causal, scale=scaling, enable_gqa=True)
    seen = seen.reshape(seen.shape[0], -1, tokens, seen.shape[-1])
    return seen.transpose(1, 2).contiguous(), None
