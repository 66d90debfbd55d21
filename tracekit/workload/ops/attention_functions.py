"""Attention as autograd functions in Python, whose kernels run without an op: older flash-attn, and TransformerEngine.

Backward passes have the inputs of their forward call, so that one formula does for both.
"""

from tracekit.workload.ops.attention import Shape, head_width, of_heads
from tracekit.workload.ops.vector import Columns
from tracekit.workload.signature import Signature


def _columns(q: Shape, k: Shape, width: int, causal: bool, signature: Signature) -> Columns:
    return of_heads(q, k, width, causal=causal, backward=signature.op.endswith("Backward"))


def _flash(signature: Signature) -> Columns | None:
    """Query, key, value; flash-attn 2 has dropout before the scale and the mask's kind, 3 has not."""
    q, k = signature.shape(0), signature.shape(1)
    if q is None or k is None or len(q) != 4 or len(k) != 4:
        return None
    third = signature.value(4)
    causal = bool(third if isinstance(third, bool) else signature.value(5))
    return _columns(q, k, head_width(q, k, signature.shape(2)), causal, signature)


def _flash_packed(signature: Signature) -> Columns | None:
    """One tensor [batch, tokens, 3, heads, width]."""
    qkv = signature.shape(0)
    if qkv is None or len(qkv) != 5 or qkv[2] != 3:
        return None
    one = (*qkv[:2], *qkv[3:])
    return _columns(one, one, one[3], bool(signature.value(3)), signature)


def _flash_varlen(signature: Signature) -> Columns | None:
    """Query and key [tokens, heads, width], their starts, and the longest of each; of one length only."""
    q, k, starts = signature.shape(0), signature.shape(1), signature.shape(3)
    longest = signature.value(5), signature.value(6)
    if q is None or k is None or not starts or len(q) != 3 or len(k) != 3:
        return None
    batch, (q_len, kv_len) = starts[0] - 1, longest
    if not isinstance(q_len, int) or not isinstance(kv_len, int) or (q[0], k[0]) != (batch * q_len, batch * kv_len):
        return None
    width = head_width(q, k, signature.shape(2))
    return _columns((batch, q_len, *q[1:]), (batch, kv_len, *k[1:]), width, bool(signature.value(9)), signature)


def _fused(signature: Signature) -> Columns | None:
    """TransformerEngine's cuDNN attention, in tokens first or batch first as the longest query at 1 tells.

    The mask is text, which isn't recorded. It is taken for causal, as of language models; without one twice the work is
    done, which is the bracket.
    """
    longest = signature.value(1)
    shapes = [tensor.shape for tensor in signature.tensors if len(tensor.shape) == 4]
    if len(shapes) < 3 or longest not in shapes[0][:2]:
        return None
    q, k, v = shapes[:3]
    width = head_width(q, k, v)
    if q[0] == longest:
        q, k = ((shape[1], shape[0], *shape[2:]) for shape in (q, k))
    causal = q[1] == k[1]
    bracket: Columns = {"work_low": 1.0, "work_high": 2.0} if causal else {}
    return _columns(q, k, width, causal, signature) | bracket


_FUNCTIONS = {
    "FlashAttnFunc": _flash,
    "FlashAttnQKVPackedFunc": _flash_packed,
    "FlashAttnVarlenFunc": _flash_varlen,
    "FusedAttnFunc": _fused,
}
FORMULAS = _FUNCTIONS | {f"{name}Backward": formula for name, formula in _FUNCTIONS.items()}
