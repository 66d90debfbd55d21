"""Compute the work of attention in Python autograd functions, whose kernels have no op: flash-attn, TransformerEngine.

Backward passes have the inputs of their forward call, so one formula serves both.
"""

from tracekit.workload.ops.attention import Shape, build_attention_columns, build_mask_columns, compute_head_width
from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.signature import Signature


def _build_columns(q: Shape, k: Shape, width: int, causal: bool, signature: Signature) -> Columns:
    return build_attention_columns(q, k, width, causal=causal, backward=signature.op.endswith("Backward"))


def _compute_flash(signature: Signature) -> Columns | None:
    """Compute attention of query, key, value; flash-attn 2 has dropout before scale and mask kind, 3 doesn't."""
    q, k = signature.get_shape(0), signature.get_shape(1)
    if q is None or k is None or len(q) != 4 or len(k) != 4:
        return None
    third = signature.get_value(4)
    causal = bool(third if isinstance(third, bool) else signature.get_value(5))
    return _build_columns(q, k, compute_head_width(q, k, signature.get_shape(2)), causal, signature)


def _compute_flash_packed(signature: Signature) -> Columns | None:
    """Compute attention of one tensor [batch, tokens, 3, heads, width]."""
    qkv = signature.get_shape(0)
    if qkv is None or len(qkv) != 5 or qkv[2] != 3:
        return None
    one = (*qkv[:2], *qkv[3:])
    return _build_columns(one, one, one[3], bool(signature.get_value(3)), signature)


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
    return _build_columns(
        (batch, q_len, *q[1:]), (batch, kv_len, *k[1:]), width, bool(signature.get_value(9)), signature
    )


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
    columns = _build_columns(q, k, width, causal, signature)
    masks = [tensor for tensor in signature.tensors if tensor.shape[-2:] == (q[1], k[1])][:1]
    return columns | build_mask_columns(masks, columns) | bracket


_FUNCTION_FORMULAS = {
    "FlashAttnFunc": _compute_flash,
    "FlashAttnQKVPackedFunc": _compute_flash_packed,
    "FlashAttnVarlenFunc": _compute_flash_varlen,
    "FusedAttnFunc": _compute_fused,
}
FORMULAS = _FUNCTION_FORMULAS | {f"{name}Backward": formula for name, formula in _FUNCTION_FORMULAS.items()}
