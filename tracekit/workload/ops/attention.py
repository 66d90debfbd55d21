"""Compute the work of scaled dot-product attention, by the ops that launch its kernels.

Positions of the arguments follow PyTorch's native_functions.yaml; ``flash`` and ``efficient`` ops take [batch, tokens,
heads, width], ``scaled_dot_product`` and cuDNN ones [batch, heads, tokens, width].
"""

from tracekit.workload.ops.memory_traffic import Columns, Formula
from tracekit.workload.signature import Signature

Shape = tuple[int, ...]

MIN_WINDOWS_PER_SEQUENCE = 4
"""Minimum ratio of a sequence to its window. Only the sequence's start sees fewer keys than a window: an eighth of its
work."""


def compute_head_width(q: Shape, k: Shape, v: Shape | None) -> int:
    """Compute the head width; if values are narrower than keys (MLA), the mean, as each has half of the work.

    Args:
        q: Query.
        k: Key, as wide as the query.
        v: Value; assumed to be as wide as the key if its other axes differ from the key's.
    """
    return (q[-1] + v[-1]) // 2 if v and v[:-1] == k[:-1] else q[-1]


def build_attention_columns(
    q: Shape,
    k: Shape,
    width: int,
    *,
    causal: bool,
    backward: bool,
    window: int | None = None,
    paged: bool = False,
) -> Columns:
    """Build the columns of attention.

    Args:
        q: Query [batch, tokens, heads, ...].
        k: Key, likewise.
        width: Width of a head.
        causal: Whether the mask is causal.
        backward: Whether this is the backward pass.
        window: Maximum number of keys that each query sees, if limited.
        paged: Whether the keys lie in pages.
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


def _make_formula(
    *,
    causal: int,
    first: int = 0,
    tokens_first: bool = False,
    starts: tuple[int, ...] = (),
    backward: bool | None = None,
    window: int | None = None,
) -> Formula:
    """Make the formula of an op with query, key, value from ``first`` on and is_causal (or a mask kind) at ``causal``.

    Args:
        causal: Position of the mask; -1 if there is none.
        first: Position of the query; in a backward op gradients come before it.
        tokens_first: Whether the tokens' axis comes before the heads'.
        starts: Positions of the starts or positions of sequences of several lengths; if given, the shapes of query and
            key aren't enough.
        backward: Whether it is a backward op; by default, ops with gradients before the query are.
        window: Position of the number of earlier keys that a query sees, -1 if all; the number of later keys comes
            next.
    """
    has_gradients = first > 0 if backward is None else backward
    order = (0, 1, 2) if tokens_first else (0, 2, 1)

    def columns(signature: Signature) -> Columns | None:
        q, k = signature.get_shape(first), signature.get_shape(first + 1)
        if q is None or k is None or len(q) != 4 or len(k) != 4:
            return None
        if any(signature.get_shape(index) for index in starts):
            return None
        masked = bool(signature.get_value(causal))
        return build_attention_columns(
            tuple(q[axis] for axis in order),
            tuple(k[axis] for axis in order),
            compute_head_width(q, k, signature.get_shape(first + 2)),
            causal=masked,
            backward=has_gradients,
            window=_parse_window(signature, window, masked),
        )

    return columns


def _make_packed_formula(
    *,
    starts: int,
    longest: int,
    causal: int,
    paged: bool = False,
    first: int = 0,
    backward: bool | None = None,
    window: int | None = None,
) -> Formula:
    """Make the formula of an op over sequences stored one after another, [tokens, heads, width].

    The lengths aren't recorded, only their number (the length of ``starts``, less one) and the longest query and key
    (at ``longest``). The work is known if all sequences are as long as the longest. It is also known if queries see a
    much shorter window: then lengths hardly matter. ``paged`` keys are all keys in memory: there the work is known for
    one sequence, and for several sequences that see only their own keys.
    """
    has_gradients = first > 0 if backward is None else backward

    def columns(signature: Signature) -> Columns | None:
        q, k, offsets = signature.get_shape(first), signature.get_shape(first + 1), signature.get_shape(starts)
        q_len, kv_len = signature.get_integer(longest), signature.get_integer(longest + 1)
        if q is None or k is None or len(q) != 3 or len(k) < 2 or not offsets or not q_len or kv_len is None:
            return None
        masked = bool(signature.get_value(causal))
        batch, seen = offsets[0] - 1, _parse_window(signature, window, masked)
        if seen is not None and seen <= q_len // MIN_WINDOWS_PER_SEQUENCE and q[0] == k[0]:
            batch = max(q[0] // q_len, 1)
        keys = batch * kv_len if paged and (batch == 1 or q_len == kv_len) else k[0]
        if q[0] != batch * q_len or keys != batch * kv_len:
            return None
        return build_attention_columns(
            (batch, q_len, q[1]),
            (batch, kv_len, k[-2]),
            compute_head_width(q, k, signature.get_shape(first + 2)),
            causal=masked,
            backward=has_gradients,
            window=seen,
            paged=paged,
        )

    return columns


def _parse_window(signature: Signature, index: int | None, causal: bool) -> int | None:
    """Parse the number of keys that each query sees, itself included; ``None`` if there is no limit."""
    before, after = (signature.get_value(index + i) if index is not None else None for i in (0, 1))
    after = 0 if causal else after
    if not isinstance(before, int) or not isinstance(after, int) or before < 0 or after < 0:
        return None
    return before + 1 + after


def _try_formulas(*formulas: Formula) -> Formula:
    """Return a formula that tries several and returns the first result."""
    return lambda signature: next(filter(None, (formula(signature) for formula in formulas)), None)


FORMULAS: dict[str, Formula] = {
    "aten::_flash_attention_forward": _try_formulas(
        _make_formula(causal=8, window=11, tokens_first=True, starts=(3,)),
        _make_packed_formula(starts=3, longest=5, causal=8, window=11),
    ),
    "aten::_flash_attention_forward_no_dropout_inplace": _try_formulas(
        _make_formula(causal=9, window=12, first=1, tokens_first=True, starts=(4,), backward=False),
        _make_packed_formula(starts=4, longest=6, causal=9, window=12, first=1, backward=False),
    ),
    "aten::_efficient_attention_forward": _make_formula(causal=9, tokens_first=True, starts=(4,)),
    "aten::scaled_dot_product_attention": _make_formula(causal=5),
    "aten::_scaled_dot_product_flash_attention": _make_formula(causal=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _make_formula(causal=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _make_formula(causal=7, first=1),
    "aten::_scaled_dot_product_efficient_attention": _make_formula(causal=6),
    "aten::_scaled_dot_product_cudnn_attention": _make_formula(causal=6),
    "aten::_cudnn_attention_forward": _make_formula(causal=10),
    "flash_attn::_flash_attn_forward": _make_formula(causal=5, window=6, tokens_first=True),
    "flash_attn::_flash_attn_varlen_forward": _make_packed_formula(starts=3, longest=5, causal=9, window=10),
    "flash_attn::_flash_attn_backward": _make_formula(causal=11, window=12, first=1, tokens_first=True),
    "flash_attn::_flash_attn_varlen_backward": _make_packed_formula(
        starts=9, longest=11, causal=15, window=16, first=1
    ),
    **dict.fromkeys(
        ("flash_attn_3::fwd", "flash_attn_3::_flash_attn_forward"),
        _try_formulas(
            _make_formula(causal=24, window=25, tokens_first=True, starts=(7, 8, 11, 14)),
            _make_packed_formula(starts=7, longest=12, causal=24, window=25),
        ),
    ),
    "flash_attn_3::bwd": _try_formulas(
        _make_formula(causal=16, window=17, first=1, tokens_first=True, starts=(9,)),
        _make_packed_formula(starts=9, longest=13, causal=16, window=17, first=1),
    ),
    "flash_attn_3::_flash_attn_backward": _try_formulas(
        _make_formula(causal=16, window=17, first=1, tokens_first=True, starts=(6,)),
        _make_packed_formula(starts=6, longest=10, causal=16, window=17, first=1),
    ),
    "xformers::efficient_attention_forward_cutlass": _make_formula(causal=9, tokens_first=True, starts=(4,)),
    "xformers::efficient_attention_backward_cutlass": _make_formula(causal=14, first=1, tokens_first=True, starts=(6,)),
    "xformers::efficient_attention_forward_ck": _make_formula(causal=9, tokens_first=True, starts=(4,)),
    "xformers::efficient_attention_backward_ck": _make_formula(causal=15, first=1, tokens_first=True, starts=(5,)),
    "xformers_flash::flash_fwd": _try_formulas(
        _make_formula(causal=10, tokens_first=True), _make_packed_formula(starts=3, longest=6, causal=10)
    ),
    "xformers_flash::flash_bwd": _try_formulas(
        _make_formula(causal=13, first=2, tokens_first=True),
        _make_packed_formula(starts=7, longest=9, causal=13, first=2),
    ),
    "_vllm_fa2_C::varlen_fwd": _make_packed_formula(starts=4, longest=10, causal=15, window=16, paged=True),
    **dict.fromkeys(
        ("_vllm_fa3_C::fwd", "sgl_kernel::fwd"),
        _try_formulas(
            _make_packed_formula(starts=7, longest=12, causal=24, window=25),
            _make_packed_formula(starts=7, longest=12, causal=24, window=25, paged=True),
        ),
    ),
    "aiter::mha_fwd": _make_formula(causal=5, window=6, tokens_first=True),
    "aiter::fmha_v3_fwd": _make_formula(causal=5, window=6, tokens_first=True),
    "aiter::mha_bwd": _make_formula(causal=8, window=9, first=1, tokens_first=True),
    "aiter::fmha_v3_bwd": _make_formula(causal=8, window=9, first=1, tokens_first=True),
    "aiter::mha_varlen_fwd": _make_packed_formula(starts=3, longest=5, causal=12, window=13),
    "aiter::fmha_v3_varlen_fwd": _make_packed_formula(starts=3, longest=5, causal=12, window=13),
    "aiter::mha_varlen_bwd": _make_packed_formula(starts=6, longest=8, causal=13, window=14, first=1),
    "aiter::fmha_v3_varlen_bwd": _make_packed_formula(starts=6, longest=8, causal=13, window=14, first=1),
    "sage_fwd": _make_formula(causal=-1),
    "aiter::mha_batch_prefill": _make_packed_formula(starts=3, longest=6, causal=12, paged=True),
    "aten::_flash_attention_backward": _try_formulas(
        _make_formula(causal=11, window=15, first=1, tokens_first=True, starts=(6,)),
        _make_packed_formula(starts=6, longest=8, causal=11, window=15, first=1),
    ),
    "aten::_efficient_attention_backward": _make_formula(causal=14, first=1, tokens_first=True, starts=(6,)),
    "aten::_scaled_dot_product_flash_attention_backward": _make_formula(causal=11, first=1),
    "aten::_scaled_dot_product_efficient_attention_backward": _make_formula(causal=11, first=1),
    "aten::_scaled_dot_product_cudnn_attention_backward": _make_formula(causal=14, first=1),
    "aten::_cudnn_attention_backward": _make_formula(causal=14, first=1),
    "aten::_scaled_dot_product_fused_attention_overrideable": _make_formula(causal=5),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _make_formula(causal=13, first=1),
}
