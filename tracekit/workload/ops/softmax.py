"""Softmax and log-softmax, forward and backward."""

from tracekit.workload.ops.vector import Columns, columns_of, largest_of, size_of
from tracekit.workload.signature import Signature

FLOPS_PER_ELEMENT = 5


def traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Every input read once, one output like the largest written."""
    largest = largest_of(signature.tensors)
    bytes_ = size_of(signature.tensors, item_bytes) + largest.numel * largest.item_bytes(item_bytes)
    return columns_of(largest.shape, flops=FLOPS_PER_ELEMENT * largest.numel, bytes_=bytes_)
