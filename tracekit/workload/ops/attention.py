"""Scaled dot-product attention, the ops that launch its kernels.

Positions of the arguments follow PyTorch's native_functions.yaml; ``flash`` and ``efficient`` ops take
[batch, tokens, heads, width], ``scaled_dot_product`` and cuDNN ones [batch, heads, tokens, width].
"""

from tracekit.workload.ops.vector import Columns, Formula
from tracekit.workload.signature import Signature

Shape = tuple[int, ...]

MANY_WINDOWS = 4
"""So often a window fits into a sequence, of which only the start has fewer keys to see: an eighth of its work."""


def head_width(q: Shape, k: Shape, v: Shape | None) -> int:
    """Of a head, from the last axes: where values are narrower than keys (MLA) the mean, as half of the work is theirs.

    Args:
        q: Query.
        k: Key, as wide as it.
        v: Value; taken to be as wide as the key where its other axes are others.
    """
    return (q[-1] + v[-1]) // 2 if v and v[:-1] == k[:-1] else q[-1]


def of_heads(
    q: Shape,
    k: Shape,
    width: int,
    *,
    causal: bool,
    backward: bool,
    window: int | None = None,
    paged: bool = False,
) -> Columns:
    """The columns of attention.

    Args:
        q: Query [batch, tokens, heads, ...].
        k: Key, likewise.
        width: Of a head.
        causal: Whether the mask is causal.
        backward: Whether it is the backward pass.
        window: Keys that each query sees at most, where that is limited.
        paged: Whether keys lie in pages.
    """
    return {
        "batch": q[0],
        "heads": q[2],
        "kv_heads": k[2],
        "q_len": q[1],
        "kv_len": k[1],
        "head_dim": width,
        "causal": causal,
        "window": window,
        "paged": paged,
        "direction": "backward" if backward else "forward",
    }


def _attention(
    *,
    causal: int,
    first: int = 0,
    tokens_first: bool = False,
    starts: tuple[int, ...] = (),
    backward: bool | None = None,
    window: int | None = None,
) -> Formula:
    """The formula of an op with query, key, value at ``first`` and is_causal (or a mask kind) at ``causal``.

    Args:
        causal: Where the mask is told; -1 if there is none.
        first: Where the query is; in a backward op gradients come before it.
        tokens_first: Tokens come before heads.
        starts: Where sequences of several lengths are told to begin, or to lie: then the shapes of query and key don't
            tell.
        backward: Whether it is a backward op; by default those are that have gradients before the query.
        window: Where the keys that a query sees before it are told, -1 if all; those after it come next.
    """
    has_gradients = first > 0 if backward is None else backward
    order = (0, 1, 2) if tokens_first else (0, 2, 1)

    def columns(signature: Signature) -> Columns | None:
        q, k = signature.shape(first), signature.shape(first + 1)
        if q is None or k is None or len(q) != 4 or len(k) != 4:
            return None
        if any(signature.shape(index) for index in starts):
            return None
        masked = bool(signature.value(causal))
        return of_heads(
            tuple(q[axis] for axis in order),
            tuple(k[axis] for axis in order),
            head_width(q, k, signature.shape(first + 2)),
            causal=masked,
            backward=has_gradients,
            window=_window(signature, window, masked),
        )

    return columns


def _packed(
    *,
    starts: int,
    longest: int,
    causal: int,
    paged: bool = False,
    first: int = 0,
    backward: bool | None = None,
    window: int | None = None,
) -> Formula:
    """The formula of an op over sequences that lie one after another, [tokens, heads, width].

    Their lengths aren't recorded, only how many there are (the length of ``starts``, less one) and the longest query
    and key (at ``longest``): that tells the work if all are as long as the longest, or if queries see a window that is
    shorter by far: then lengths hardly matter. ``paged`` keys are all that the memory holds: there it tells the work of
    one sequence, and of several that see no keys but their own queries'.
    """
    has_gradients = first > 0 if backward is None else backward

    def columns(signature: Signature) -> Columns | None:
        q, k, offsets = signature.shape(first), signature.shape(first + 1), signature.shape(starts)
        q_len, kv_len = signature.whole(longest), signature.whole(longest + 1)
        if q is None or k is None or len(q) != 3 or len(k) < 2 or not offsets or not q_len or kv_len is None:
            return None
        masked = bool(signature.value(causal))
        batch, seen = offsets[0] - 1, _window(signature, window, masked)
        if seen is not None and seen <= q_len // MANY_WINDOWS and q[0] == k[0]:
            batch = max(q[0] // q_len, 1)
        keys = batch * kv_len if paged and (batch == 1 or q_len == kv_len) else k[0]
        if q[0] != batch * q_len or keys != batch * kv_len:
            return None
        return of_heads(
            (batch, q_len, q[1]),
            (batch, kv_len, k[-2]),
            head_width(q, k, signature.shape(first + 2)),
            causal=masked,
            backward=has_gradients,
            window=seen,
            paged=paged,
        )

    return columns


def _window(signature: Signature, index: int | None, causal: bool) -> int | None:
    """Keys that each query sees, itself among them; ``None`` if there is no limit."""
    before, after = (signature.value(index + i) if index is not None else None for i in (0, 1))
    after = 0 if causal else after
    if not isinstance(before, int) or not isinstance(after, int) or before < 0 or after < 0:
        return None
    return before + 1 + after


def _either(*formulas: Formula) -> Formula:
    """The first formula that the shapes fit."""
    return lambda signature: next(filter(None, (formula(signature) for formula in formulas)), None)


FORMULAS: dict[str, Formula] = {
    "aten::_flash_attention_forward": _either(
        _attention(causal=8, window=11, tokens_first=True, starts=(3,)),
        _packed(starts=3, longest=5, causal=8, window=11),
    ),
    "aten::_flash_attention_forward_no_dropout_inplace": _either(
        _attention(causal=9, window=12, first=1, tokens_first=True, starts=(4,), backward=False),
        _packed(starts=4, longest=6, causal=9, window=12, first=1, backward=False),
    ),
    "aten::_efficient_attention_forward": _attention(causal=9, tokens_first=True, starts=(4,)),
    "aten::scaled_dot_product_attention": _attention(causal=5),
    "aten::_scaled_dot_product_flash_attention": _attention(causal=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(causal=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention(causal=7, first=1),
    "aten::_scaled_dot_product_efficient_attention": _attention(causal=6),
    "aten::_scaled_dot_product_cudnn_attention": _attention(causal=6),
    "aten::_cudnn_attention_forward": _attention(causal=10),
    "flash_attn::_flash_attn_forward": _attention(causal=5, window=6, tokens_first=True),
    "flash_attn::_flash_attn_varlen_forward": _packed(starts=3, longest=5, causal=9, window=10),
    "flash_attn::_flash_attn_backward": _attention(causal=11, window=12, first=1, tokens_first=True),
    "flash_attn::_flash_attn_varlen_backward": _packed(starts=9, longest=11, causal=15, window=16, first=1),
    **dict.fromkeys(
        ("flash_attn_3::fwd", "flash_attn_3::_flash_attn_forward"),
        _either(
            _attention(causal=24, window=25, tokens_first=True, starts=(7, 8, 11, 14)),
            _packed(starts=7, longest=12, causal=24, window=25),
        ),
    ),
    "flash_attn_3::bwd": _either(
        _attention(causal=16, window=17, first=1, tokens_first=True, starts=(9,)),
        _packed(starts=9, longest=13, causal=16, window=17, first=1),
    ),
    "flash_attn_3::_flash_attn_backward": _either(
        _attention(causal=16, window=17, first=1, tokens_first=True, starts=(6,)),
        _packed(starts=6, longest=10, causal=16, window=17, first=1),
    ),
    "xformers::efficient_attention_forward_cutlass": _attention(causal=9, tokens_first=True, starts=(4,)),
    "xformers::efficient_attention_backward_cutlass": _attention(causal=14, first=1, tokens_first=True, starts=(6,)),
    "xformers::efficient_attention_forward_ck": _attention(causal=9, tokens_first=True, starts=(4,)),
    "xformers::efficient_attention_backward_ck": _attention(causal=15, first=1, tokens_first=True, starts=(5,)),
    "xformers_flash::flash_fwd": _either(
        _attention(causal=10, tokens_first=True), _packed(starts=3, longest=6, causal=10)
    ),
    "xformers_flash::flash_bwd": _either(
        _attention(causal=13, first=2, tokens_first=True), _packed(starts=7, longest=9, causal=13, first=2)
    ),
    "_vllm_fa2_C::varlen_fwd": _packed(starts=4, longest=10, causal=15, window=16, paged=True),
    **dict.fromkeys(
        ("_vllm_fa3_C::fwd", "sgl_kernel::fwd"),
        _either(
            _packed(starts=7, longest=12, causal=24, window=25),
            _packed(starts=7, longest=12, causal=24, window=25, paged=True),
        ),
    ),
    "aiter::mha_fwd": _attention(causal=5, window=6, tokens_first=True),
    "aiter::fmha_v3_fwd": _attention(causal=5, window=6, tokens_first=True),
    "aiter::mha_bwd": _attention(causal=8, window=9, first=1, tokens_first=True),
    "aiter::fmha_v3_bwd": _attention(causal=8, window=9, first=1, tokens_first=True),
    "aiter::mha_varlen_fwd": _packed(starts=3, longest=5, causal=12, window=13),
    "aiter::fmha_v3_varlen_fwd": _packed(starts=3, longest=5, causal=12, window=13),
    "aiter::mha_varlen_bwd": _packed(starts=6, longest=8, causal=13, window=14, first=1),
    "aiter::fmha_v3_varlen_bwd": _packed(starts=6, longest=8, causal=13, window=14, first=1),
    "sage_fwd": _attention(causal=-1),
    "aiter::mha_batch_prefill": _packed(starts=3, longest=6, causal=12, paged=True),
    "aten::_flash_attention_backward": _either(
        _attention(causal=11, window=15, first=1, tokens_first=True, starts=(6,)),
        _packed(starts=6, longest=8, causal=11, window=15, first=1),
    ),
    "aten::_efficient_attention_backward": _attention(causal=14, first=1, tokens_first=True, starts=(6,)),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(causal=11, first=1),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(causal=11, first=1),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(causal=14, first=1),
    "aten::_cudnn_attention_backward": _attention(causal=14, first=1),
    "aten::_scaled_dot_product_fused_attention_overrideable": _attention(causal=5),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _attention(causal=13, first=1),
}
