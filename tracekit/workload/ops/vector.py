"""What families bound by memory share: bytes read and written once, and the rows and columns they fall into.

``bytes`` is compulsory traffic, a lower bound: each input read once, each output written once.
"""

import math
from collections.abc import Callable, Sequence

from tracekit.workload.signature import Signature, Tensor

Columns = dict[str, int | float | bool | str | None]
Formula = Callable[[Signature], Columns | None]
Traffic = Callable[[Signature, int], Columns | None]

INDEX_BYTES = 8


def columns_of(shape: Sequence[int], flops: int, bytes_: int) -> Columns:
    """The columns of a kernel that works along the last axis of ``shape``."""
    cols = shape[-1] if shape else 1
    return {"rows": math.prod(shape[:-1]), "cols": cols, "flops": flops, "bytes": bytes_}


def size_of(tensors: Sequence[Tensor], item_bytes: int) -> int:
    """Bytes of all tensors together."""
    return sum(tensor.size_bytes(item_bytes) for tensor in tensors)


def largest_of(tensors: Sequence[Tensor]) -> Tensor:
    """The tensor with the most elements."""
    return max(tensors, key=lambda tensor: tensor.numel)


def every_tensor_once(flops_per_element: int = 0) -> Traffic:
    """An op that takes its outputs as arguments and touches every tensor once."""

    def columns(signature: Signature, item_bytes: int) -> Columns:
        largest = largest_of(signature.tensors)
        flops = flops_per_element * largest.numel
        return columns_of(largest.shape, flops=flops, bytes_=size_of(signature.tensors, item_bytes))

    return columns


def read_and_write(*, both: Sequence[int], read: Sequence[int] = (), write: Sequence[int] = ()) -> Traffic:
    """An op that works in place on the inputs ``both``, reads ``read`` and writes ``write``."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        changed = [tensor for index in both for tensor in signature.at(index)]
        once = [tensor for index in (*read, *write) for tensor in signature.at(index)]
        if not changed and not once:
            return None
        largest = largest_of(changed or once)
        bytes_ = 2 * size_of(changed, item_bytes) + size_of(once, item_bytes)
        return columns_of(largest.shape, flops=largest.numel, bytes_=bytes_)

    return columns
