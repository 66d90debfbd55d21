"""Softmax and log-softmax, forward and backward."""

from tracekit.workload.ops.vector import Columns, columns_of, largest_of, size_of
from tracekit.workload.signature import Signature

FLOPS_PER_ELEMENT = 5


def traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Every input read once, one output like the largest written.

    The forward pass's input, which backward ops took until 2021, tells its type only.
    """
    backward = signature.op.endswith("_backward_data")
    tensors = [*signature.at(0), *signature.at(1)] if backward else signature.tensors
    if not tensors:
        return None
    largest = largest_of(tensors)
    bytes_ = size_of(tensors, item_bytes) + largest.numel * largest.item_bytes(item_bytes)
    return columns_of(largest.shape, flops=FLOPS_PER_ELEMENT * largest.numel, bytes_=bytes_)
