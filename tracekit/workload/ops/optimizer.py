"""Optimizers over lists of tensors, fused or one foreach op at a time."""

import math
import re

from tracekit.workload.ops.vector import Columns, columns_of, size_of
from tracekit.workload.signature import Signature

ADAM_FLOPS = 15
LISTS = re.compile(r"TensorList(?:ScalarList)?Metadata<(?:[^0-9<>]*, )?(\d{1,3})\b")
CHUNK = 65536
"""Elements that one block of multi_tensor_apply works on (PyTorch's ForeachFunctors, kChunkSize)."""

SQUARES = ("aten::_foreach_addcmul", "aten::_foreach_addcmul_")
"""Multiply two lists, which in every Adam are one and the same."""

ONE_WAY = ("aten::_foreach_norm", "aten::_foreach_max", "aten::linalg_vector_norm", "aten::_foreach_zero_")
"""Only read their lists, or only write them."""


def traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """From the shapes of the lists: all read; the first written, or all but the gradients of a fused step."""
    lists = [tensors for index in range(len(signature.dims)) if (tensors := signature.at(index)) and tensors[0].shape]
    if not lists:
        return None
    numel = sum(tensor.numel for tensor in lists[0])
    read = sum(size_of(tensors, item_bytes) for tensors in lists)
    if signature.op in ONE_WAY:
        return columns_of((numel,), flops=numel, bytes_=read)
    parameters = size_of(lists[0], item_bytes)
    if not signature.op.startswith("aten::_fused"):
        twice = parameters if signature.op in SQUARES else 0
        return columns_of((numel,), flops=numel, bytes_=read + parameters - twice)
    state = [tensors for tensors in lists if sum(tensor.numel for tensor in tensors) == numel]
    read = sum(size_of(tensors, item_bytes) for tensors in state)
    gradients = size_of(state[1], item_bytes) if len(state) > 1 else 0
    return columns_of((numel,), flops=ADAM_FLOPS * numel, bytes_=2 * read - gradients)


def over_parameters(signature: Signature, kernel: str, parameters: int, item_bytes: int) -> Columns | None:
    """Of an op whose lists weren't recorded, by the number of lists in its kernel's name.

    Args:
        signature: The op.
        kernel: The multi_tensor_apply kernel, which names how many lists it goes over.
        parameters: Elements of each list.
        item_bytes: Bytes per element.
    """
    lists = LISTS.search(kernel)
    if lists is None:
        return None
    count = int(lists.group(1))
    if signature.op in ONE_WAY:
        passes = count
    elif signature.op.startswith("aten::_fused"):
        passes = 2 * count - 1
    else:
        passes = count + signature.op.endswith("_") - (signature.op in SQUARES)
    return columns_of((parameters,), flops=parameters, bytes_=passes * parameters * item_bytes)


def blocks_of(shapes: list[list[int]]) -> int:
    """Blocks that multi_tensor_apply runs for a list of tensors."""
    return sum(math.ceil(math.prod(shape) / CHUNK) for shape in shapes)
