"""GEMMs: out[m,n] = a[m,k] b[k,n], ``batch`` times."""

import math

from tracekit.workload.ops.elementwise import broadcast
from tracekit.workload.ops.vector import Columns, Formula
from tracekit.workload.signature import Signature


def _product(a: int, b: int) -> Formula:
    """The formula of an op whose inputs ``a`` and ``b`` are [..., m, k] and [..., k, n]."""

    def columns(signature: Signature) -> Columns | None:
        left, right = signature.shape(a), signature.shape(b)
        if left is None or right is None or len(left) < 2 or len(right) < 2:
            return None
        return {"batch": math.prod(left[:-2]), "m": left[-2], "n": right[-1], "k": left[-1]}

    return columns


def _linear(signature: Signature) -> Columns | None:
    """Input [..., k], weight [n, k]."""
    left, right = signature.shape(0), signature.shape(1)
    if not left or right is None or len(right) != 2:
        return None
    return {"batch": 1, "m": math.prod(left[:-1]), "n": right[0], "k": left[-1]}


def _matmul(signature: Signature) -> Columns | None:
    """Left [..., m, k], right [..., k, n]; of a single right matrix all rows on the left are one GEMM."""
    left, right = signature.shape(0), signature.shape(1)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    if len(right) == 2:
        return {"batch": 1, "m": math.prod(left[:-1]), "n": right[1], "k": left[-1]}
    batch = math.prod(broadcast((left[:-2], right[:-2])))
    return {"batch": batch, "m": left[-2], "n": right[-1], "k": left[-1]}


def _matrix_vector(a: int) -> Formula:
    def columns(signature: Signature) -> Columns | None:
        matrix = signature.shape(a)
        return {"batch": 1, "m": matrix[0], "n": 1, "k": matrix[1]} if matrix and len(matrix) == 2 else None

    return columns


FORMULAS: dict[str, Formula] = {
    "aten::mm": _product(0, 1),
    "aten::bmm": _product(0, 1),
    "aten::addmm": _product(1, 2),
    "aten::addmm_": _product(1, 2),
    "aten::_addmm_activation": _product(1, 2),
    "aten::baddbmm": _product(1, 2),
    "aten::baddbmm_": _product(1, 2),
    "aten::linear": _linear,
    "aten::matmul": _matmul,
    "aten::mv": _matrix_vector(0),
    "aten::addmv": _matrix_vector(1),
    "aten::addmv_": _matrix_vector(1),
}
