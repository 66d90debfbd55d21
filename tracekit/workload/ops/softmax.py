"""Compute the traffic of softmax and log-softmax, forward and backward."""

from tracekit.workload.ops.memory_traffic import Columns, build_traffic_columns, find_largest, sum_bytes
from tracekit.workload.signature import Signature

FLOPS_PER_ELEMENT = 5


def compute_traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the traffic of a softmax: every input read once, one output like the largest written.

    Backward ops until 2021 also took the forward pass's input, but only read its type.
    """
    backward = signature.op.endswith("_backward_data")
    tensors = [*signature.get_tensors(0), *signature.get_tensors(1)] if backward else signature.tensors
    if not tensors:
        return None
    largest = find_largest(tensors)
    bytes_ = sum_bytes(tensors, item_bytes) + largest.numel * largest.get_item_bytes(item_bytes)
    return build_traffic_columns(largest.shape, flops=FLOPS_PER_ELEMENT * largest.numel, bytes_=bytes_)
