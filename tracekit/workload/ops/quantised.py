"""GEMMs with quantised operands, and those of several groups: torchao, bitsandbytes, TransformerEngine.

A weight that is narrower than the arithmetic is read as it is stored: such rows have ``bytes`` of their own.
"""

import math

from tracekit.workload.ops import chains
from tracekit.workload.ops.vector import Columns, Formula
from tracekit.workload.signature import ITEM_BYTES, Signature

SUM_BYTES = 4
"""Integer GEMMs come out as int32."""


def _scaled(signature: Signature) -> Columns | None:
    """Operands [m, k] and [k, n]; 4-bit ones hold two elements in each along k."""
    left, right = signature.at(0), signature.at(1)
    if not left or not right or len(left[0].shape) != 2 or len(right[0].shape) != 2:
        return None
    return {"batch": 1, "m": left[0].shape[0], "n": right[0].shape[1], "k": _packed(signature) * left[0].shape[1]}


def _packed(signature: Signature) -> int:
    """Elements along k in each that is stored of the first operand."""
    return 2 if signature.at(0)[0].dtype == "nvfp4" else 1


def _scaled_into(signature: Signature) -> Columns | None:
    """The same behind the output [m, n], which tells all but the depth."""
    out, left = signature.shape(0), signature.shape(1)
    if out is None or left is None or len(out) != 2 or len(left) != 2:
        return None
    return {"batch": 1, "m": out[0], "n": out[1], "k": left[1]}


def _grouped(signature: Signature) -> Columns | None:
    """One GEMM per group; where groups split an axis of an operand of two axes they are taken to be even.

    4-bit operands hold two elements in each along k.
    """
    left, right, ends = signature.shape(0), signature.shape(1), signature.at(_grouped_ends(signature))
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    m, k, n = left[-2], _packed(signature) * left[-1], right[-1]
    if len(left) == 3 and len(right) == 3:
        return {"batch": left[0], "m": m, "n": n, "k": k}
    if not ends:
        return None
    groups = max(ends[0].numel, 1)
    if len(right) == 3:
        m = math.ceil(m / groups)
    elif len(left) == 3:
        n = math.ceil(n / groups)
    else:
        k = math.ceil(k / groups)
    return {"batch": groups, "m": m, "n": n, "k": k}


def _grouped_ends(signature: Signature) -> int:
    return {"aten::_scaled_grouped_mm": 4, "aten::_scaled_grouped_mm_v2": 8}.get(signature.op, 2)


def _stored(*, outputs: int, axis: int = 0, scales: tuple[int, ...] = ()) -> Formula:
    """The formula of an op with input [..., k] and a packed weight, both first, and n at ``axis`` of ``outputs``.

    Args:
        outputs: Argument with an axis as long as the output is wide: a tensor, or the list of the weight's sizes.
        axis: That axis.
        scales: Arguments read besides.
    """

    def columns(signature: Signature) -> Columns | None:
        x, weight, wide = signature.at(0), signature.at(1), signature.shape(outputs) or signature.numbers(outputs)
        if not x or not weight or not x[0].shape or not wide or len(wide) <= axis:
            return None
        m, n, k = math.prod(x[0].shape[:-1]), wide[axis], x[0].shape[-1]
        size = x[0].item_bytes(2)
        read = weight[0].size_bytes(1) + sum(t.size_bytes(2) for index in scales for t in signature.at(index))
        return {"batch": 1, "m": m, "n": n, "k": k, "bytes": read + (m * k + m * n) * size}

    return columns


def _integers(*, transposed: bool) -> Formula:
    """The formula of an op with 8-bit operands [..., k] and [k, n], or [n, k]."""

    def columns(signature: Signature) -> Columns | None:
        left, right = signature.shape(0), signature.shape(1)
        if left is None or right is None or not left or len(right) != 2:
            return None
        m, k, n = math.prod(left[:-1]), left[-1], right[0 if transposed else 1]
        size = ITEM_BYTES["int8"] * (m * k + k * n) + SUM_BYTES * m * n
        return {"batch": 1, "m": m, "n": n, "k": k, "dtype": "int8", "bytes": size}

    return columns


def _module(signature: Signature) -> Columns | None:
    """TransformerEngine's autograd function around one GEMM."""
    known = chains.layer(signature)
    return None if known is None else {"batch": 1, "m": known[0], "n": known[1], "k": known[2]}


FORMULAS: dict[str, Formula] = {
    "aten::_scaled_mm": _scaled,
    "aten::_scaled_mm_v2": _scaled,
    "_C::cutlass_scaled_mm": _scaled_into,
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm_v2": _grouped,
    "aten::_int_mm": _integers(transposed=False),
    "aten::_weight_int4pack_mm": _stored(outputs=3, axis=1, scales=(3,)),
    "aten::_weight_int8pack_mm": _stored(outputs=2, scales=(2,)),
    "bitsandbytes::int8_linear_matmul": _integers(transposed=True),
    "bitsandbytes::gemv_4bit": _stored(outputs=2, scales=(3,)),
    "bitsandbytes::gemm_4bit": _stored(outputs=2, scales=(3, 7)),
    "_Linear": _module,
    "_LayerNormLinear": _module,
}
