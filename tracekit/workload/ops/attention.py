"""Compute the work of scaled dot-product attention, by the ops that launch its kernels.

Positions of the arguments follow PyTorch's native_functions.yaml; ``flash`` and ``efficient`` ops take [batch, tokens,
heads, width], ``scaled_dot_product`` and cuDNN ones [batch, heads, tokens, width].
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from predictors.kernels import SPARSE_LAW
from tracekit.workload.ops.memory_traffic import Columns, Formula
from tracekit.workload.ops.registry import op
from tracekit.workload.signature import Signature, Tensor

Shape = tuple[int, ...]

MIN_WINDOWS_PER_SEQUENCE = 4
"""Minimum ratio of a sequence to its window. Only the sequence's start sees fewer keys than a window: an eighth of its
work."""


MASK_AXES = 4
"""Batch, heads, queries, keys; a mask with fewer axes is broadcast over the first ones."""
HALF_BYTES = 2
"""Bytes per element of a mask of unknown type."""
UNMEASURED_CACHES = ("nvfp4", "mxfp8", "mxfp4")
"""Formats of keys and values that no measured attention read."""
MOST_UNPACKING = 2.0
"""How many times as long attention may take that reads these as their bytes say: with 4 bits about as long as with 16,
on H100, so that unpacking costs what it saves. A judgement."""
PAGED = "the pages of the batch's keys are read, of a cache's"
BIAS_GRADIENT = 3
"""Place of the bias in the flags that say which gradients are wanted: query, key, value, bias."""


@dataclass(frozen=True, slots=True)
class MaskArgument:
    """Where an op has the bias that it adds to the scores, or their mask.

    Attributes:
        position: Position of the argument; ``None``: its place differs between releases, and its shape [queries, keys]
            tells it.
        wanted: In a backward op, position of the flag, or list of flags, that says whether its gradient is computed.
    """

    position: int | None = None
    wanted: int | None = None

    def find(self, signature: Signature, pairs: tuple[int, int]) -> list[Tensor]:
        """Return the masks of a call, with their gradients if these are arguments.

        ``pairs`` are the numbers of queries and of keys in memory.
        """
        if self.position is not None:
            return signature.get_tensors(self.position)
        return [tensor for tensor in signature.tensors if tensor.shape == pairs]

    def has_gradient(self, signature: Signature) -> bool:
        """Return whether the mask's gradient is computed; false where that isn't recorded."""
        flags = signature.get_value(self.wanted) if self.wanted is not None else False
        return flags is True or (isinstance(flags, list) and flags[BIAS_GRADIENT : BIAS_GRADIENT + 1] == [True])


ANYWHERE = MaskArgument()


def build_mask_columns(masks: Iterable[Tensor], columns: Columns, *, has_gradient: bool = False) -> Columns:
    """Build the columns of a bias or mask, which is read once as it is stored: an expanded axis once.

    Its gradient is written for all that it was expanded to.

    The masks have up to ``MASK_AXES`` axes; other inputs have none.
    """
    found = [mask for mask in masks if mask.numel > 1 and len(mask.shape) <= MASK_AXES]
    if not found:
        return {}
    batch, heads, q_len, kv_len = (int(columns[name] or 1) for name in ("batch", "heads", "q_len", "kv_len"))
    stored = [max(sizes) for sizes in zip(*map(_count_stored_axes, found), strict=True)]
    of_batch, of_heads = (batch, heads) if has_gradient else stored[:2]
    bytes_ = sum(math.prod(_count_stored_axes(mask)) * mask.get_item_bytes(HALF_BYTES) for mask in found)
    if has_gradient:
        bytes_ += batch * heads * q_len * kv_len * found[0].get_item_bytes(HALF_BYTES)
    return {
        "mask_bytes": bytes_ / (of_batch * of_heads * q_len * kv_len), "mask_batch": of_batch, "mask_heads": of_heads
    }  # fmt: skip


def _count_stored_axes(mask: Tensor) -> list[int]:
    """Return the mask's sizes along ``MASK_AXES`` axes as far as they are stored: 1 where it is broadcast."""
    strides = mask.strides if len(mask.strides) == len(mask.shape) else (1,) * len(mask.shape)
    sizes = [size if stride else 1 for size, stride in zip(mask.shape, strides, strict=True)]
    return [1] * (MASK_AXES - len(sizes)) + sizes


def _read_mask(mask: MaskArgument | None, signature: Signature, columns: Columns, queries: int) -> Columns:
    """Build the mask's columns for attention with other ``columns``, where ``queries`` lie one after another."""
    if mask is None:
        return {}
    masks = mask.find(signature, (queries, int(columns["kv_len"] or 0)))
    return build_mask_columns(masks, columns, has_gradient=mask.has_gradient(signature))


def compute_head_width(q: Shape, k: Shape, v: Shape | None) -> int:
    """Compute the head width; if values are narrower than keys (MLA), the mean, as each has half of the work.

    Values are assumed to be as wide as the key if their other axes differ from the key's.
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

    Query and key are [batch, tokens, heads, ...]; a query sees at most ``window`` keys, which lie in pages if
    ``paged``.
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
    mask: MaskArgument | None = None,
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
        mask: The bias or mask.
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
        built = build_attention_columns(
            tuple(q[axis] for axis in order),
            tuple(k[axis] for axis in order),
            compute_head_width(q, k, signature.get_shape(first + 2)),
            causal=masked,
            backward=has_gradients,
            window=_parse_window(signature, window, masked),
        )
        return built | _read_mask(mask, signature, built, q[order[1]])

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
    mask: MaskArgument | None = None,
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
        built = build_attention_columns(
            (batch, q_len, q[1]),
            (batch, kv_len, k[-2]),
            compute_head_width(q, k, signature.get_shape(first + 2)),
            causal=masked,
            backward=has_gradients,
            window=seen,
            paged=paged,
        )
        return built | _read_mask(mask, signature, built, q[0])

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

    def columns(signature: Signature) -> Columns | None:
        return next(filter(None, (formula(signature) for formula in formulas)), None)

    return columns


op("aten::_flash_attention_forward", family="attention")(
    _try_formulas(
        _make_formula(causal=8, window=11, tokens_first=True, starts=(3,)),
        _make_packed_formula(starts=3, longest=5, causal=8, window=11),
    )
)
op("aten::_flash_attention_forward_no_dropout_inplace", family="attention")(
    _try_formulas(
        _make_formula(causal=9, window=12, first=1, tokens_first=True, starts=(4,), backward=False),
        _make_packed_formula(starts=4, longest=6, causal=9, window=12, first=1, backward=False),
    )
)
op(
    "aten::_efficient_attention_forward", "xformers::efficient_attention_forward_cutlass",
    "xformers::efficient_attention_forward_ck", family="attention",
)(_make_formula(causal=9, tokens_first=True, starts=(4,), mask=MaskArgument(3)))  # fmt: skip
op("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_fused_attention_overrideable", family="attention")(
    _make_formula(causal=5, mask=MaskArgument(3))
)
op("aten::_scaled_dot_product_flash_attention", family="attention")(_make_formula(causal=4))
op("aten::_scaled_dot_product_flash_attention_for_cpu", family="attention")(
    _make_formula(causal=4, mask=MaskArgument(5))
)
op("aten::_scaled_dot_product_flash_attention_for_cpu_backward", family="attention")(
    _make_formula(causal=7, first=1, mask=MaskArgument(8))
)
op("aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention", family="attention")(
    _make_formula(causal=6, mask=MaskArgument(3))
)
op("aten::_cudnn_attention_forward", family="attention")(_make_formula(causal=10, mask=MaskArgument(3)))
op("flash_attn::_flash_attn_forward", family="attention")(_make_formula(causal=5, window=6, tokens_first=True))
op("flash_attn::_flash_attn_varlen_forward", family="attention")(
    _make_packed_formula(starts=3, longest=5, causal=9, window=10)
)
op("flash_attn::_flash_attn_backward", family="attention")(
    _make_formula(causal=11, window=12, first=1, tokens_first=True)
)
op("flash_attn::_flash_attn_varlen_backward", family="attention")(
    _make_packed_formula(starts=9, longest=11, causal=15, window=16, first=1)
)
op("flash_attn_3::fwd", "flash_attn_3::_flash_attn_forward", family="attention")(
    _try_formulas(
        _make_formula(causal=24, window=25, tokens_first=True, starts=(7, 8, 11, 14)),
        _make_packed_formula(starts=7, longest=12, causal=24, window=25),
    )
)
op("flash_attn_3::bwd", family="attention")(
    _try_formulas(
        _make_formula(causal=16, window=17, first=1, tokens_first=True, starts=(9,)),
        _make_packed_formula(starts=9, longest=13, causal=16, window=17, first=1),
    )
)
op("flash_attn_3::_flash_attn_backward", family="attention")(
    _try_formulas(
        _make_formula(causal=16, window=17, first=1, tokens_first=True, starts=(6,)),
        _make_packed_formula(starts=6, longest=10, causal=16, window=17, first=1),
    )
)
op("xformers::efficient_attention_backward_cutlass", family="attention")(
    _make_formula(causal=14, first=1, tokens_first=True, starts=(6,), mask=MaskArgument(4))
)
op("xformers::efficient_attention_backward_ck", family="attention")(
    _make_formula(causal=15, first=1, tokens_first=True, starts=(5,), mask=MaskArgument(4))
)
op("xformers_flash::flash_fwd", family="attention")(
    _try_formulas(_make_formula(causal=10, tokens_first=True), _make_packed_formula(starts=3, longest=6, causal=10))
)
op("xformers_flash::flash_bwd", family="attention")(
    _try_formulas(
        _make_formula(causal=13, first=2, tokens_first=True),
        _make_packed_formula(starts=7, longest=9, causal=13, first=2),
    )
)
op("_vllm_fa2_C::varlen_fwd", family="attention", unread=PAGED)(
    _make_packed_formula(starts=4, longest=10, causal=15, window=16, paged=True)
)
op("_vllm_fa3_C::fwd", "sgl_kernel::fwd", family="attention", unread=PAGED)(
    _try_formulas(
        _make_packed_formula(starts=7, longest=12, causal=24, window=25),
        _make_packed_formula(starts=7, longest=12, causal=24, window=25, paged=True),
    )
)
op("aiter::mha_fwd", "aiter::fmha_v3_fwd", family="attention")(
    _make_formula(causal=5, window=6, tokens_first=True, mask=ANYWHERE)
)
op("aiter::mha_bwd", "aiter::fmha_v3_bwd", family="attention")(
    _make_formula(causal=8, window=9, first=1, tokens_first=True, mask=ANYWHERE)
)
op("aiter::mha_varlen_fwd", "aiter::fmha_v3_varlen_fwd", family="attention")(
    _make_packed_formula(starts=3, longest=5, causal=12, window=13, mask=ANYWHERE)
)
op("aiter::mha_varlen_bwd", "aiter::fmha_v3_varlen_bwd", family="attention")(
    _make_packed_formula(starts=6, longest=8, causal=13, window=14, first=1, mask=ANYWHERE)
)
op("sage_fwd", family="attention")(_make_formula(causal=-1))
op("aiter::mha_batch_prefill", family="attention", unread=PAGED)(
    _make_packed_formula(starts=3, longest=6, causal=12, paged=True, mask=ANYWHERE)
)
op("aten::_flash_attention_backward", family="attention")(
    _try_formulas(
        _make_formula(causal=11, window=15, first=1, tokens_first=True, starts=(6,)),
        _make_packed_formula(starts=6, longest=8, causal=11, window=15, first=1),
    )
)
op("aten::_efficient_attention_backward", family="attention")(
    _make_formula(causal=14, first=1, tokens_first=True, starts=(6,), mask=MaskArgument(4, wanted=15))
)
op("aten::_scaled_dot_product_flash_attention_backward", family="attention")(_make_formula(causal=11, first=1))
op("aten::_scaled_dot_product_efficient_attention_backward", family="attention")(
    _make_formula(causal=11, first=1, mask=MaskArgument(4, wanted=10))
)
op("aten::_scaled_dot_product_cudnn_attention_backward", "aten::_cudnn_attention_backward", family="attention")(
    _make_formula(causal=14, first=1, mask=MaskArgument(8))
)
op("aten::_scaled_dot_product_fused_attention_overrideable_backward", family="attention")(
    _make_formula(causal=13, first=1, mask=MaskArgument(4, wanted=5))
)


def _build_function_columns(q: Shape, k: Shape, width: int, causal: bool, signature: Signature) -> Columns:
    return build_attention_columns(q, k, width, causal=causal, backward=signature.op.endswith("Backward"))


@op("FlashAttnFunc", "FlashAttnFuncBackward", family="attention")
def _compute_flash(signature: Signature) -> Columns | None:
    """Compute attention of query, key, value; flash-attn 2 has dropout before scale and mask kind, 3 doesn't."""
    q, k = signature.get_shape(0), signature.get_shape(1)
    if q is None or k is None or len(q) != 4 or len(k) != 4:
        return None
    third = signature.get_value(4)
    causal = bool(third if isinstance(third, bool) else signature.get_value(5))
    return _build_function_columns(q, k, compute_head_width(q, k, signature.get_shape(2)), causal, signature)


@op("FlashAttnQKVPackedFunc", "FlashAttnQKVPackedFuncBackward", family="attention")
def _compute_flash_packed(signature: Signature) -> Columns | None:
    """Compute attention of one tensor [batch, tokens, 3, heads, width]."""
    qkv = signature.get_shape(0)
    if qkv is None or len(qkv) != 5 or qkv[2] != 3:
        return None
    one = (*qkv[:2], *qkv[3:])
    return _build_function_columns(one, one, one[3], bool(signature.get_value(3)), signature)


@op("FlashAttnVarlenFunc", "FlashAttnVarlenFuncBackward", family="attention")
def _compute_flash_varlen(signature: Signature) -> Columns | None:
    """Compute attention of query and key [tokens, heads, width], their starts and longest lengths.

    ``None`` if the sequences differ in length.
    """
    q, k, starts = signature.get_shape(0), signature.get_shape(1), signature.get_shape(3)
    longest = signature.get_value(5), signature.get_value(6)
    if q is None or k is None or not starts or len(q) != 3 or len(k) != 3:
        return None
    batch, (q_len, kv_len) = starts[0] - 1, longest
    if not isinstance(q_len, int) or not isinstance(kv_len, int) or (q[0], k[0]) != (batch * q_len, batch * kv_len):
        return None
    width = compute_head_width(q, k, signature.get_shape(2))
    return _build_function_columns(
        (batch, q_len, *q[1:]), (batch, kv_len, *k[1:]), width, bool(signature.get_value(9)), signature
    )


@op("FusedAttnFunc", "FusedAttnFuncBackward", family="attention")
def _compute_fused(signature: Signature) -> Columns | None:
    """Compute TransformerEngine's cuDNN attention; the longest query at 1 shows whether tokens or batch come first.

    The mask is a text, which isn't recorded. It is assumed to be causal, as in language models; without a mask the work
    doubles, which is the upper bound.
    """
    longest = signature.get_value(1)
    shapes = [tensor.shape for tensor in signature.tensors if len(tensor.shape) == 4]
    if len(shapes) < 3 or longest not in shapes[0][:2]:
        return None
    q, k, v = shapes[:3]
    width = compute_head_width(q, k, v)
    if q[0] == longest:
        q, k = ((shape[1], shape[0], *shape[2:]) for shape in (q, k))
    causal = q[1] == k[1]
    bracket: Columns = {"work_low": 1.0, "work_high": 2.0} if causal else {}
    columns = _build_function_columns(q, k, width, causal, signature)
    masks = [tensor for tensor in signature.tensors if tensor.shape[-2:] == (q[1], k[1])][:1]
    return columns | build_mask_columns(masks, columns) | bracket


@op("tracekit::sparse_attention", family="attention", unread=PAGED)
def _compute_sparse(signature: Signature) -> Columns | None:
    """Compute attention to selected keys: queries [sequences, tokens, heads, width], cache [sequences, keys, 1, width].

    How many keys are selected for a query, and the values' part of a key, follow. Places beyond the keys that there
    are are worked on as well.
    """
    q, k = signature.get_shape(0), signature.get_shape(1)
    selected, values = signature.get_integer(2), signature.get_integer(3)
    if not q or not k or len(q) != 4 or len(k) != 4 or not selected or not values:
        return None
    keys = (k[0], max(k[1], selected), *k[2:])
    columns = build_attention_columns(
        q, keys, (q[3] + values) // 2, causal=False, backward=False, window=selected, paged=True
    )
    return {**columns, "part": SPARSE_LAW, "cache_width": k[3]}


@op("tracekit::paged_attention", family="attention", unread=PAGED)
def _compute_paged(signature: Signature) -> Columns | None:
    """Compute a captured engine's attention: queries and cache [sequences, tokens, heads, width], window, precision.

    The precision of the cache, its last argument, is that of the queries by default.

    A cache with one head of another width than the queries holds keys and values as one vector (MLA), of which the
    values are the first part; their width is the argument after the window.
    """
    q, k, values = signature.get_shape(0), signature.get_shape(1), signature.get_integer(3)
    if not q or not k or len(q) != 4 or len(k) != 4:
        return None
    width = (q[3] + values) // 2 if values else q[3]
    columns = build_attention_columns(
        q, k, width, causal=True, backward=False, window=signature.get_integer(2) or None, paged=True
    )
    cached = signature.get_value(4)
    if cached:
        columns["kv_dtype"] = cached
    if cached in UNMEASURED_CACHES:
        columns |= {"work_low": 1.0, "work_high": MOST_UNPACKING}
    return {**columns, "cache_width": k[3]} if values and k[2] == 1 and q[2] > 1 else columns
