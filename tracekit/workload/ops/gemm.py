"""Compute the work of GEMMs: out[m,n] = a[m,k] b[k,n], ``batch`` times."""

import math

from tracekit.workload.ops.elementwise import broadcast_shapes
from tracekit.workload.ops.memory_traffic import Columns, Formula
from tracekit.workload.signature import ITEM_BYTES, Signature, Tensor

ADDED, BETA = 0, 3
"""Positions of the added matrix and its factor in ``addmm`` and its kin."""
MIN_RESULT_BYTES = 2
"""Minimum bytes per element of a result: that of narrower formats is of 16 bit."""


def _make_gemm_formula(a: int, b: int) -> Formula:
    """Make the formula of an op whose inputs ``a`` and ``b`` are [..., m, k] and [..., k, n]."""

    def columns(signature: Signature) -> Columns | None:
        left, right = signature.get_shape(a), signature.get_shape(b)
        if left is None or right is None or len(left) < 2 or len(right) < 2:
            return None
        sizes = {"batch": math.prod(left[:-2]), "m": left[-2], "n": right[-1], "k": left[-1]}
        return sizes | _find_run(signature, a, b, left[-1])

    return columns


def _find_run(signature: Signature, a: int, b: int, k: int) -> Columns:
    """Find how many elements lie side by side in operands, as ``channels``, where that isn't the depth in any of them.

    It tells whether loads are aligned: of both numbers the one that is divisible by more powers of two. A weight's
    gradient, for one, is a product whose depth, the tokens, may be odd without harm::

        gradient [k, m] transposed, input [k, n]     runs: m and n
    """
    runs = [_count_run(signature.get_tensor(place)) for place in (a, b)]
    known = [run for run in runs if run]
    if len(known) < len(runs) or k in known:
        return {}
    return {"channels": max(known, key=lambda run: run & -run)}


def _count_run(matrix: Tensor | None) -> int | None:
    """Return how many elements lie side by side in a matrix; None where its strides don't tell."""
    if matrix is None or len(matrix.strides) != len(matrix.shape):
        return None
    runs = (size for size, stride in zip(matrix.shape[:-3:-1], matrix.strides[:-3:-1], strict=True) if stride == 1)
    return next(runs, None)


def _compute_linear(signature: Signature) -> Columns | None:
    """Compute the GEMM of input [..., k] and weight [n, k]."""
    left, right = signature.get_shape(0), signature.get_shape(1)
    if not left or right is None or len(right) != 2:
        return None
    return {"batch": 1, "m": math.prod(left[:-1]), "n": right[0], "k": left[-1]}


def _compute_matmul(signature: Signature) -> Columns | None:
    """Compute the GEMM of [..., m, k] and [..., k, n]; a single right matrix makes all rows on the left one GEMM."""
    left, right = signature.get_shape(0), signature.get_shape(1)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    if len(right) == 2:
        return {"batch": 1, "m": math.prod(left[:-1]), "n": right[1], "k": left[-1]}
    batch = math.prod(broadcast_shapes((left[:-2], right[:-2])))
    return {"batch": batch, "m": left[-2], "n": right[-1], "k": left[-1]}


def _make_matrix_vector_formula(a: int) -> Formula:
    def columns(signature: Signature) -> Columns | None:
        matrix = signature.get_shape(a)
        return {"batch": 1, "m": matrix[0], "n": 1, "k": matrix[1]} if matrix and len(matrix) == 2 else None

    return columns


def _add_matrix(product: Formula, axes: int) -> Formula:
    """Make the formula of an op that adds its first input to a product of ``axes`` axes.

    It is read as well, unless it is broadcast: a bias is as good as nothing.
    """

    def columns(signature: Signature) -> Columns | None:
        sizes, added = product(signature), signature.get_tensor(ADDED)
        if sizes is None or added is None or len(added.shape) < axes or signature.get_value(BETA) == 0:
            return sizes
        batch, m, n, k = (int(sizes[name] or 0) for name in ("batch", "m", "n", "k"))
        if added.stored_elements < batch * m * n:
            return sizes
        size = ITEM_BYTES[signature.gemm_dtype or "fp32"]
        results = 2 * m * n * max(size, MIN_RESULT_BYTES)
        return {**sizes, "bytes": batch * ((m * k + k * n) * size + results)}

    return columns


FORMULAS: dict[str, Formula] = {
    "aten::mm": _make_gemm_formula(0, 1),
    "aten::bmm": _make_gemm_formula(0, 1),
    "aten::addmm": _add_matrix(_make_gemm_formula(1, 2), 2),
    "aten::addmm_": _add_matrix(_make_gemm_formula(1, 2), 2),
    "aten::_addmm_activation": _add_matrix(_make_gemm_formula(1, 2), 2),
    "aten::baddbmm": _add_matrix(_make_gemm_formula(1, 2), 3),
    "aten::baddbmm_": _add_matrix(_make_gemm_formula(1, 2), 3),
    "aten::linear": _compute_linear,
    "aten::matmul": _compute_matmul,
    "aten::mv": _make_matrix_vector_formula(0),
    "aten::addmv": _add_matrix(_make_matrix_vector_formula(1), 1),
    "aten::addmv_": _add_matrix(_make_matrix_vector_formula(1), 1),
}
