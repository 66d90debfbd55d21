"""Compute GEMMs with quantised operands and grouped GEMMs: torchao, bitsandbytes, TransformerEngine, Primus-Turbo.

A weight that is narrower than the arithmetic is read as it is stored: such rows have ``bytes`` of their own.
"""

import math

from tracekit.workload.ops import gemm_sequences
from tracekit.workload.ops.memory_traffic import Columns, Formula
from tracekit.workload.signature import ITEM_BYTES, Signature

ACCUMULATOR_BYTES = 4
"""Bytes of the output of integer GEMMs, int32."""


def _compute_scaled_mm(signature: Signature) -> Columns | None:
    """Compute the GEMM of operands [m, k] and [k, n]; 4-bit operands store two elements in each along k."""
    left, right = signature.get_tensors(0), signature.get_tensors(1)
    if not left or not right or len(left[0].shape) != 2 or len(right[0].shape) != 2:
        return None
    return {
        "batch": 1,
        "m": left[0].shape[0],
        "n": right[0].shape[1],
        "k": _count_packed_elements(signature) * left[0].shape[1],
    }


def _count_packed_elements(signature: Signature) -> int:
    """Count the elements along k in each stored element of the first operand."""
    return 2 if signature.get_tensors(0)[0].dtype == "nvfp4" else 1


def _compute_scaled_mm_out(signature: Signature) -> Columns | None:
    """Compute the same GEMM from the output [m, n], which comes first, and the operands after it."""
    out, left = signature.get_shape(0), signature.get_shape(1)
    if out is None or left is None or len(out) != 2 or len(left) != 2:
        return None
    return {"batch": 1, "m": out[0], "n": out[1], "k": left[1]}


def _compute_grouped_mm(signature: Signature) -> Columns | None:
    """Compute one GEMM per group; groups that split an axis of a two-axis operand are assumed to be even.

    4-bit operands store two elements in each along k.
    """
    left, right, ends = (
        signature.get_shape(0),
        signature.get_shape(1),
        signature.get_tensors(_get_ends_position(signature)),
    )
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    m, k, n = left[-2], _count_packed_elements(signature) * left[-1], right[-1]
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


def _get_ends_position(signature: Signature) -> int:
    return {"aten::_scaled_grouped_mm": 4, "aten::_scaled_grouped_mm_v2": 8}.get(signature.op, 2)


def _make_packed_weight_formula(*, outputs: int, axis: int = 0, scales: tuple[int, ...] = ()) -> Formula:
    """Make the formula of an op with input [..., k] and a packed weight first, and n at ``axis`` of ``outputs``.

    Args:
        outputs: Argument with an axis as long as the output is wide: a tensor, or the list of the weight's sizes.
        axis: That axis.
        scales: Further arguments that are read.
    """

    def columns(signature: Signature) -> Columns | None:
        x, weight, wide = (
            signature.get_tensors(0),
            signature.get_tensors(1),
            signature.get_shape(outputs) or signature.get_integers(outputs),
        )
        if not x or not weight or not x[0].shape or not wide or len(wide) <= axis:
            return None
        m, n, k = math.prod(x[0].shape[:-1]), wide[axis], x[0].shape[-1]
        size = x[0].get_item_bytes(2)
        read = weight[0].compute_bytes(1) + sum(
            t.compute_bytes(2) for index in scales for t in signature.get_tensors(index)
        )
        return {"batch": 1, "m": m, "n": n, "k": k, "bytes": read + (m * k + m * n) * size}

    return columns


def _make_int8_formula(*, transposed: bool) -> Formula:
    """Make the formula of an op with 8-bit operands [..., k] and [k, n], or [n, k]."""

    def columns(signature: Signature) -> Columns | None:
        left, right = signature.get_shape(0), signature.get_shape(1)
        if left is None or right is None or not left or len(right) != 2:
            return None
        m, k, n = math.prod(left[:-1]), left[-1], right[0 if transposed else 1]
        size = ITEM_BYTES["int8"] * (m * k + k * n) + ACCUMULATOR_BYTES * m * n
        return {"batch": 1, "m": m, "n": n, "k": k, "dtype": "int8", "bytes": size}

    return columns


def _compute_flagged(signature: Signature) -> Columns | None:
    """Compute the GEMM of two matrices, each perhaps with its scale after it, the type of the output, and two flags.

    The flags say which matrix is transposed. 4-bit operands store two elements in each along k.
    """
    places = [place for place in range(3) if len(signature.get_shape(place) or ()) == 2]
    if len(places) < 2 or places[0] != 0:
        return None
    flags = 5 if places[-1] == 2 else 3
    shapes = []
    for place, flag in ((0, flags), (places[-1], flags + 1)):
        shape, turned = signature.get_shape(place), signature.get_value(flag)
        if shape is None or not isinstance(turned, bool):
            return None
        shapes.append(shape[::-1] if turned else shape)
    (m, k), (depth, n) = shapes
    return {"batch": 1, "m": m, "n": n, "k": _count_packed_elements(signature) * k} if k == depth else None


def _compute_linear_function(signature: Signature) -> Columns | None:
    """Compute TransformerEngine's autograd function around one GEMM."""
    known = gemm_sequences.find_linear_sizes(signature)
    return None if known is None else {"batch": 1, "m": known[0], "n": known[1], "k": known[2]}


FORMULAS: dict[str, Formula] = {
    "aten::_scaled_mm": _compute_scaled_mm,
    "aten::_scaled_mm_v2": _compute_scaled_mm,
    "_C::cutlass_scaled_mm": _compute_scaled_mm_out,
    "aten::_grouped_mm": _compute_grouped_mm,
    "aten::_scaled_grouped_mm": _compute_grouped_mm,
    "aten::_scaled_grouped_mm_v2": _compute_grouped_mm,
    "aten::_int_mm": _make_int8_formula(transposed=False),
    "aten::_weight_int4pack_mm": _make_packed_weight_formula(outputs=3, axis=1, scales=(3,)),
    "aten::_weight_int8pack_mm": _make_packed_weight_formula(outputs=2, scales=(2,)),
    "bitsandbytes::int8_linear_matmul": _make_int8_formula(transposed=True),
    "bitsandbytes::gemv_4bit": _make_packed_weight_formula(outputs=2, scales=(3,)),
    "bitsandbytes::gemm_4bit": _make_packed_weight_formula(outputs=2, scales=(3, 7)),
    **{
        f"{library}::hipblaslt_gemm{kind}": _compute_flagged
        for library in ("primus_turbo_cpp_extension", "primus_turbo")
        for kind in ("", "_fp8", "_fp4")
    },
    "_Linear": _compute_linear_function,
    "_LayerNormLinear": _compute_linear_function,
}
