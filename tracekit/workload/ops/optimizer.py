"""Compute the traffic of optimizers over lists of tensors: fused, or one foreach op at a time."""

import math
import re

from tracekit.workload.ops.memory_traffic import Columns, build_traffic_columns, sum_bytes
from tracekit.workload.ops.registry import other_ops_of
from tracekit.workload.signature import Signature

ADAM_FLOPS = 15
LIST_COUNT = re.compile(r"TensorList(?:ScalarList)?Metadata<(?:[^0-9<>]*, )?(\d{1,3})\b")
CHUNK_ELEMENTS = 65536
"""Elements of one block of multi_tensor_apply (PyTorch's ForeachFunctors, kChunkSize)."""

SQUARING_OPS = ("aten::_foreach_addcmul", "aten::_foreach_addcmul_")
"""Ops that multiply two lists; in every Adam both are the same list."""

ONE_WAY_OPS = ("aten::_foreach_norm", "aten::_foreach_max", "aten::linalg_vector_norm", "aten::_foreach_zero_")
"""Ops that only read their lists, or only write them."""


@other_ops_of("optimizer")
def compute_traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the traffic of an optimizer from the shapes of its lists.

    All lists are read. The first one is written, or, in a fused step, all but the gradients.
    """
    lists = [
        tensors
        for index in range(len(signature.dims))
        if (tensors := signature.get_tensors(index)) and tensors[0].shape
    ]
    if not lists:
        return None
    numel = sum(tensor.numel for tensor in lists[0])
    read = sum(sum_bytes(tensors, item_bytes) for tensors in lists)
    if signature.op in ONE_WAY_OPS:
        return build_traffic_columns((numel,), flops=numel, bytes_=read)
    parameters = sum_bytes(lists[0], item_bytes)
    if not signature.op.startswith("aten::_fused"):
        twice = parameters if signature.op in SQUARING_OPS else 0
        return build_traffic_columns((numel,), flops=numel, bytes_=read + parameters - twice)
    state = [tensors for tensors in lists if sum(tensor.numel for tensor in tensors) == numel]
    read = sum(sum_bytes(tensors, item_bytes) for tensors in state)
    gradients = sum_bytes(state[1], item_bytes) if len(state) > 1 else 0
    return build_traffic_columns((numel,), flops=ADAM_FLOPS * numel, bytes_=2 * read - gradients)


def compute_traffic_without_lists(
    signature: Signature, kernel: str, parameters: int, item_bytes: int
) -> Columns | None:
    """Compute the traffic of an op whose lists weren't recorded, by the number of lists in its kernel's name.

    Each list has ``parameters`` elements of ``item_bytes``.
    """
    lists = LIST_COUNT.search(kernel)
    if lists is None:
        return None
    count = int(lists.group(1))
    if signature.op in ONE_WAY_OPS:
        passes = count
    elif signature.op.startswith("aten::_fused"):
        passes = 2 * count - 1
    else:
        passes = count + signature.op.endswith("_") - (signature.op in SQUARING_OPS)
    return build_traffic_columns((parameters,), flops=parameters, bytes_=passes * parameters * item_bytes)


def count_blocks(shapes: list[list[int]]) -> int:
    """Count the blocks that multi_tensor_apply runs for a list of tensors."""
    return sum(math.ceil(math.prod(shape) / CHUNK_ELEMENTS) for shape in shapes)
