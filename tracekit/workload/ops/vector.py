"""Families bound by memory: bytes read and written once, and the rows and columns they fall into.

``bytes`` is compulsory traffic, a lower bound: each input read once, each output written once.
"""

import math
from collections.abc import Callable

from tracekit.workload.signature import Signature, Tensor

Columns = dict[str, int | float | bool | str | None]
Traffic = Callable[[Signature, int], Columns | None]

WRITES_ONLY = (
    "aten::fill_",
    "aten::zero_",
    "aten::full",
    "aten::normal_",
    "aten::uniform_",
    "aten::bernoulli_",
)
ROUNDED_TO_BOOL = (
    "aten::eq",
    "aten::ne",
    "aten::lt",
    "aten::le",
    "aten::gt",
    "aten::ge",
    "aten::logical_and",
)

# Parameters, gradients and moments are read; all but the gradients are written back.
OPTIMIZER_GRADIENT_INPUT = 1


def _elementwise(signature: Signature, item_bytes: int) -> Columns:
    """Inputs broadcast against each other; one output of the broadcast shape."""
    tensors = signature.tensors
    shape = _broadcast([tensor.shape for tensor in tensors])
    numel = math.prod(shape)
    written = numel * (1 if signature.op in ROUNDED_TO_BOOL else _out_item_bytes(tensors, item_bytes))
    read = 0 if signature.op in WRITES_ONLY else _bytes(tensors, item_bytes)
    return _columns(shape, flops=numel, bytes_=read + written)


def _foreach(signature: Signature, item_bytes: int) -> Columns:
    """Tensor lists of equal shapes: all read, the first list written."""
    numel = sum(tensor.numel for tensor in signature.at(0))
    read = _bytes(signature.tensors, item_bytes)
    return _columns((numel,), flops=numel, bytes_=read + _bytes(signature.at(0), item_bytes))


def _optimizer(signature: Signature, item_bytes: int) -> Columns | None:
    """A fused step over tensor lists: every list read, all but the gradients written."""
    if not signature.op.startswith("aten::_fused"):
        return _foreach(signature, item_bytes)
    lists = [tensors for index in range(len(signature.dims)) if (tensors := signature.at(index))]
    parameters = _bytes(lists[0], item_bytes)
    state = [tensors for tensors in lists if _bytes(tensors, item_bytes) == parameters]
    numel = sum(tensor.numel for tensor in lists[0])
    return _columns((numel,), flops=15 * numel, bytes_=(2 * len(state) - 1) * parameters)


def _same_shape_out(flops_per_element: int) -> Traffic:
    """Every input read once, one output like the largest input (norms, softmax, forward and backward)."""

    def columns(signature: Signature, item_bytes: int) -> Columns:
        largest = max(signature.tensors, key=lambda tensor: tensor.numel)
        bytes_ = _bytes(signature.tensors, item_bytes) + largest.size_bytes(item_bytes)
        return _columns(largest.shape, flops=flops_per_element * largest.numel, bytes_=bytes_)

    return columns


def _reduction(signature: Signature, item_bytes: int) -> Columns:
    """Every input read once; the output is small."""
    largest = max(signature.tensors, key=lambda tensor: tensor.numel)
    return _columns(largest.shape, flops=largest.numel, bytes_=_bytes(signature.tensors, item_bytes))


def _copy(signature: Signature, item_bytes: int) -> Columns:
    """copy_ reads its second input and writes its first; what gathers or joins writes what it reads."""
    tensors = signature.tensors
    if signature.op == "aten::copy_" and len(tensors) > 1:
        return _columns(tensors[0].shape, flops=0, bytes_=_bytes(tensors[:2], item_bytes))
    numel = sum(tensor.numel for tensor in tensors)
    return _columns((numel,), flops=0, bytes_=2 * _bytes(tensors, item_bytes))


def _embedding(signature: Signature, item_bytes: int) -> Columns | None:
    """Weight [V, D] and indices: a row of D read and written per index."""
    table, indices = signature.shape(0), signature.shape(1)
    if signature.op != "aten::embedding" and signature.op != "aten::index_select":
        return None
    indices = signature.shape(2) if signature.op == "aten::index_select" else indices
    if table is None or indices is None:
        return None
    rows, cols = math.prod(indices), math.prod(table[1:])
    return _columns((rows, cols), flops=0, bytes_=2 * rows * cols * item_bytes + 8 * rows)


def _columns(shape: tuple[int, ...], flops: int, bytes_: int) -> Columns:
    cols = shape[-1] if shape else 1
    return {"rows": math.prod(shape[:-1]), "cols": cols, "flops": flops, "bytes": bytes_}


def _bytes(tensors: list[Tensor], item_bytes: int) -> int:
    return sum(tensor.size_bytes(item_bytes) for tensor in tensors)


def _out_item_bytes(tensors: list[Tensor], item_bytes: int) -> int:
    return max(Tensor((1,), tensor.dtype).size_bytes(item_bytes) for tensor in tensors)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


TRAFFIC: dict[str, Traffic] = {
    "elementwise": _elementwise,
    "norm": _same_shape_out(flops_per_element=8),
    "softmax": _same_shape_out(flops_per_element=5),
    "reduction": _reduction,
    "copy": _copy,
    "embedding": _embedding,
    "optimizer": _optimizer,
}
