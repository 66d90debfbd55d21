"""Compute GEMMs with a 2:4 sparse operand (two zeros in four elements along k), by CUTLASS or cuSPARSELt.

Only the other two elements are stored and multiplied, so k is half of a dense GEMM's. The FLOPs are half as well, and
the GPU's rate for them is its dense rate.
"""

import math

from tracekit.workload.ops.memory_traffic import Columns, sum_bytes
from tracekit.workload.signature import Signature, Tensor

STORED_SIXTEENTHS = {"int8": 10}
"""Elements that cuSPARSELt stores for sixteen, with the positions of the nonzero ones; 9 for all other types."""
MIN_OUTPUT_BYTES = 2


def _build_sparse_gemm(rows: int, columns: int, half: int, dense: Tensor, stored: list[Tensor]) -> Columns:
    """Build the GEMM of a dense operand [rows, 2 x half] and a sparse one with ``columns``."""
    item = dense.get_item_bytes(2)
    read = sum_bytes(stored, 2) + 2 * half * rows * item
    written = rows * columns * max(item, MIN_OUTPUT_BYTES)
    return {"batch": 1, "m": rows, "n": columns, "k": half, "bytes": read + written}


def _compute_linear(signature: Signature) -> Columns | None:
    """Compute the GEMM of input [..., k] and weight [n, k / 2] with the positions of its elements."""
    x, weight = signature.get_tensors(0), signature.get_tensors(1)
    if not x or not weight or not x[0].shape or len(weight[0].shape) != 2 or x[0].shape[-1] != 2 * weight[0].shape[1]:
        return None
    rows = math.prod(x[0].shape[:-1])
    return _build_sparse_gemm(rows, *weight[0].shape, x[0], [weight[0], *signature.get_tensors(2)])


def _compute_sparse_mm(signature: Signature, first: int) -> Columns | None:
    """Compute the GEMM of a sparse operand [n, k / 2] at ``first``, its elements' positions, and a dense one [k, m]."""
    sparse, dense = signature.get_tensors(first), signature.get_tensors(first + 2)
    if not sparse or not dense or len(sparse[0].shape) != 2 or len(dense[0].shape) != 2:
        return None
    return _build_sparse_gemm(
        dense[0].shape[1], *sparse[0].shape, dense[0], [sparse[0], *signature.get_tensors(first + 1)]
    )


def _compute_compressed_mm(signature: Signature) -> Columns | None:
    """Compute the GEMM of a sparse operand [n, k] as cuSPARSELt stores it, in any shape, and a dense one [k, m]."""
    sparse, dense = signature.get_tensors(0), signature.get_tensors(1)
    if not sparse or not dense or len(dense[0].shape) != 2 or not dense[0].shape[0]:
        return None
    k, rows = dense[0].shape
    columns = sparse[0].numel * 16 // STORED_SIXTEENTHS.get(sparse[0].dtype or "", 9) // k
    return _build_sparse_gemm(rows, columns, k // 2, dense[0], sparse)


FORMULAS = {
    "aten::_sparse_semi_structured_linear": _compute_linear,
    "aten::_sparse_semi_structured_mm": lambda signature: _compute_sparse_mm(signature, 0),
    "aten::_sparse_semi_structured_addmm": lambda signature: _compute_sparse_mm(signature, 1),
    "aten::_cslt_sparse_mm": _compute_compressed_mm,
}
