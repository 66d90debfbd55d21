"""GEMMs with an operand of which two in four elements along the depth are zero (2:4), by CUTLASS or cuSPARSELt.

Only the other two are stored and multiplied, so that the GEMM is half as deep: its FLOPs are half of a dense one's,
and a GPU's rate for them is its dense rate.
"""

import math

from tracekit.workload.ops.vector import Columns, size_of
from tracekit.workload.signature import Signature, Tensor

STORED_SIXTEENTHS = {"int8": 10}
"""What cuSPARSELt keeps of sixteen elements, with the places of those that aren't zero; 9 for all other types."""
NARROWEST_OUTPUT_BYTES = 2


def _product(rows: int, columns: int, half: int, dense: Tensor, stored: list[Tensor]) -> Columns:
    """A dense operand with ``rows`` that are twice as long as ``half``, and a sparse one with ``columns``."""
    item = dense.item_bytes(2)
    read = size_of(stored, 2) + 2 * half * rows * item
    written = rows * columns * max(item, NARROWEST_OUTPUT_BYTES)
    return {"batch": 1, "m": rows, "n": columns, "k": half, "bytes": read + written}


def _linear(signature: Signature) -> Columns | None:
    """Input [..., k], weight [n, k / 2], the places of its elements."""
    x, weight = signature.at(0), signature.at(1)
    if not x or not weight or not x[0].shape or len(weight[0].shape) != 2 or x[0].shape[-1] != 2 * weight[0].shape[1]:
        return None
    rows = math.prod(x[0].shape[:-1])
    return _product(rows, *weight[0].shape, x[0], [weight[0], *signature.at(2)])


def _multiply(signature: Signature, first: int) -> Columns | None:
    """Sparse operand [n, k / 2] at ``first``, the places of its elements, and a dense operand [k, m]."""
    sparse, dense = signature.at(first), signature.at(first + 2)
    if not sparse or not dense or len(sparse[0].shape) != 2 or len(dense[0].shape) != 2:
        return None
    return _product(dense[0].shape[1], *sparse[0].shape, dense[0], [sparse[0], *signature.at(first + 1)])


def _compressed(signature: Signature) -> Columns | None:
    """A sparse operand [n, k] as cuSPARSELt stores it, in any shape, and a dense one [k, m]."""
    sparse, dense = signature.at(0), signature.at(1)
    if not sparse or not dense or len(dense[0].shape) != 2 or not dense[0].shape[0]:
        return None
    k, rows = dense[0].shape
    columns = sparse[0].numel * 16 // STORED_SIXTEENTHS.get(sparse[0].dtype or "", 9) // k
    return _product(rows, columns, k // 2, dense[0], sparse)


FORMULAS = {
    "aten::_sparse_semi_structured_linear": _linear,
    "aten::_sparse_semi_structured_mm": lambda signature: _multiply(signature, 0),
    "aten::_sparse_semi_structured_addmm": lambda signature: _multiply(signature, 1),
    "aten::_cslt_sparse_mm": _compressed,
}
