"""Build the columns of families bound by memory: bytes read and written once, and their rows and columns.

``bytes`` is compulsory traffic, a lower bound: each input read once, each output written once.
"""

import math
from collections.abc import Callable, Sequence

from tracekit.workload.signature import Signature, Tensor

Columns = dict[str, int | float | bool | str | None]
Formula = Callable[[Signature], Columns | None]
TrafficFormula = Callable[[Signature, int], Columns | None]

INDEX_BYTES = 8
PICKED = "indices pick what is read or written"
"""Why look-ups, scatters and stores into caches count less than their tensors hold."""


def build_traffic_columns(shape: Sequence[int], flops: int, bytes_: int) -> Columns:
    """Build the columns of a kernel that works along the last axis of ``shape``."""
    cols = shape[-1] if shape else 1
    return {"rows": math.prod(shape[:-1]), "cols": cols, "flops": flops, "bytes": bytes_}


def sum_bytes(tensors: Sequence[Tensor], item_bytes: int) -> int:
    """Sum the bytes of all tensors."""
    return sum(tensor.compute_bytes(item_bytes) for tensor in tensors)


def find_largest(tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensor with the most elements."""
    return max(tensors, key=lambda tensor: tensor.numel)


def make_single_pass(flops_per_element: int = 0) -> TrafficFormula:
    """Make the formula of an op that takes its outputs as arguments and touches every tensor once."""

    def columns(signature: Signature, item_bytes: int) -> Columns:
        largest = find_largest(signature.tensors)
        flops = flops_per_element * largest.numel
        return build_traffic_columns(largest.shape, flops=flops, bytes_=sum_bytes(signature.tensors, item_bytes))

    return columns


def make_read_write(*, both: Sequence[int], read: Sequence[int] = (), write: Sequence[int] = ()) -> TrafficFormula:
    """Make the formula of an op that works in place on the inputs ``both``, reads ``read`` and writes ``write``."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        changed = [tensor for index in both for tensor in signature.get_tensors(index)]
        once = [tensor for index in (*read, *write) for tensor in signature.get_tensors(index)]
        if not changed and not once:
            return None
        largest = find_largest(changed or once)
        bytes_ = 2 * sum_bytes(changed, item_bytes) + sum_bytes(once, item_bytes)
        return build_traffic_columns(largest.shape, flops=largest.numel, bytes_=bytes_)

    return columns
