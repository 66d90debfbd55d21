"""Scaled dot-product attention, the ops that launch its kernels.

Positions of the arguments follow PyTorch's native_functions.yaml; ``flash`` and ``efficient`` ops take
[batch, tokens, heads, width], ``scaled_dot_product`` and cuDNN ones [batch, heads, tokens, width].
"""

from collections.abc import Callable

from tracekit.workload.signature import Signature

Columns = dict[str, int | float | bool | str | None]


def _attention(*, causal: int, first: int = 0, tokens_first: bool = False) -> Callable[[Signature], Columns | None]:
    """The formula of an op with query, key, value at ``first`` and is_causal (or a mask kind) at ``causal``."""

    def columns(signature: Signature) -> Columns | None:
        q, k = signature.shape(first), signature.shape(first + 1)
        if q is None or k is None or len(q) != 4 or len(k) != 4:
            return None
        token, head = (1, 2) if tokens_first else (2, 1)
        return {
            "batch": q[0],
            "heads": q[head],
            "kv_heads": k[head],
            "q_len": q[token],
            "kv_len": k[token],
            "head_dim": q[3],
            "causal": bool(signature.value(causal)),
            "direction": "backward" if first else "forward",
        }

    return columns


FORMULAS: dict[str, Callable[[Signature], Columns | None]] = {
    "aten::_flash_attention_forward": _attention(causal=8, tokens_first=True),
    "aten::_efficient_attention_forward": _attention(causal=9, tokens_first=True),
    "aten::_scaled_dot_product_flash_attention": _attention(causal=4),
    "aten::_scaled_dot_product_efficient_attention": _attention(causal=6),
    "aten::_scaled_dot_product_cudnn_attention": _attention(causal=6),
    "aten::_cudnn_attention_forward": _attention(causal=10),
    "flash_attn::_flash_attn_forward": _attention(causal=5, tokens_first=True),
    "aten::_flash_attention_backward": _attention(causal=11, first=1, tokens_first=True),
    "aten::_efficient_attention_backward": _attention(causal=14, first=1, tokens_first=True),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(causal=11, first=1),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(causal=11, first=1),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(causal=14, first=1),
}
