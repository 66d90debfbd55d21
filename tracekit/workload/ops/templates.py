"""Compute the work of Inductor's Triton kernels from their buffers.

That is the traffic of fused kernels, and the GEMM or attention of templates.

A buffer has the shape that it was made with, which may be another view of the operand, transposed or with more axes.
Only its number of elements counts. The elements m k and k n of the operands and m n of the output give all three sizes:

    k = sqrt(left * right / out),  m = left / k,  n = right / k
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

from tracekit.workload.ops.attention import build_attention_columns, build_mask_columns
from tracekit.workload.ops.memory_traffic import Columns, build_traffic_columns, find_largest, sum_bytes
from tracekit.workload.signature import Signature, Tensor

READ_LIMITS = ((re.compile(r"_select_(?!backward|scatter)"), 1), (re.compile(r"_slice_(?!backward|scatter)"), 2))
"""Reads of one index along an axis, or of a slice, of which two may be read at once, as by gated units: the maximum
number of elements read for each element of the kernel."""

SELECT_NAME = re.compile(r"_index_select_")
POINTWISE_PREFIX = "triton_poi_"
REDUCTION_PREFIXES = ("triton_per_", "triton_red_")
MOVE_NAME = re.compile(
    r"^triton_poi_fused(?:_+(?:_?unsafe_view|clone|contiguous|copy|permute|reshape|select|slice|split|squeeze|t|to_copy"
    r"|transpose|unsqueeze|view))+_\d+$"
)
"""Kernels that only move elements: each that is written was read once."""
GENERATOR_NAME = re.compile(
    r"_(?:arange|cat|embedding|empty|expand|eye|fill|full|gather|index|iota|lift_fresh|new_zeros|ones|rand\w*|repeat"
    r"|scalar_tensor|stack|tril|triu|unsqueeze|zeros)(?=_)"
)
"""Kernels that may make a large result out of small buffers, or of none."""
SMALL_SHARE = 0.5
"""Largest total size of the other buffers, relative to the largest, at which that one must be read and written in
place."""


def compute_buffer_traffic(signature: Signature, item_bytes: int) -> Columns:
    """Compute the traffic: each buffer read or written once, or only what an indexed or sliced access can reach.

    A table from which rows are looked up counts one row per index.

    The integers among the kernel's arguments give the number of its elements; ``item_bytes`` are those of buffers
    without a type.
    """
    read_limits = ((MOVE_NAME, 1), *READ_LIMITS)
    max_reads_per_element = next((count for pattern, count in read_limits if pattern.search(signature.op)), None)
    tensors = _limit_tables(signature.op, signature.tensors)
    largest = find_largest(tensors)
    elements = _count_elements(signature, tensors[-1].numel, largest.numel)
    if max_reads_per_element is None or elements is None:
        reread_bytes = largest.compute_bytes(item_bytes) if _is_in_place(signature, tensors, largest) else 0
        moved = sum_bytes(tensors, item_bytes) + reread_bytes
        return build_traffic_columns(largest.shape, flops=largest.numel, bytes_=moved)
    # Several parts of each row are read of one packed buffer where as many are written, such as query and key.
    parts = sum(tensor.numel == elements and _is_part_of_rows(tensor) for tensor in tensors)
    limits = (
        max(max_reads_per_element, parts) if tensor is largest and tensor.numel > elements else max_reads_per_element
        for tensor in tensors
    )
    read = [min(tensor.stored_elements, limit * elements) for tensor, limit in zip(tensors, limits, strict=True)]
    bytes_ = sum(count * tensor.get_item_bytes(item_bytes) for count, tensor in zip(read, tensors, strict=True))
    return build_traffic_columns(largest.shape, flops=elements, bytes_=bytes_)


def _is_part_of_rows(tensor: Tensor) -> bool:
    """Return whether a buffer is a part of another's rows: elements of others lie between its own."""
    if len(tensor.strides) != len(tensor.shape):
        return False
    steps = zip(tensor.strides, tensor.shape[1:], tensor.strides[1:], strict=False)
    return any(stride > size * inner > 0 for stride, size, inner in steps)


def _is_in_place(signature: Signature, tensors: Sequence[Tensor], largest: Tensor) -> bool:
    """Return whether the largest buffer is read and written, as no other can hold what the kernel reads or writes."""
    sizes = _get_sizes(signature)
    products = [math.prod(sizes[place:]) for place in range(len(sizes))]
    if largest.numel not in products or largest.numel <= 1:
        return False
    others = [tensor.numel for tensor in tensors if tensor is not largest]
    if signature.op.startswith(REDUCTION_PREFIXES):
        # It writes at least one element per row.
        return max(others, default=0) < largest.numel // sizes[-1]
    made = not signature.op.startswith(POINTWISE_PREFIX) or GENERATOR_NAME.search(signature.op)
    return not made and sum(others) <= SMALL_SHARE * largest.numel


def _get_sizes(signature: Signature) -> list[int]:
    """Return the positive integers among the arguments."""
    values = [signature.get_value(index) for index in range(len(signature.dims))]
    return [value for value in values if isinstance(value, int) and value > 0]


def _count_elements(signature: Signature, last: int, most: int) -> int | None:
    """Infer the number of elements of a kernel, at most those of its largest buffer; ``None`` if no number gives it.

    The sizes come last. Before them are numbers of any meaning, such as the axes of dynamic shapes. A pointwise kernel
    has one element per element of its output, mostly the last buffer.
    """
    sizes = _get_sizes(signature)
    if not sizes:
        return None
    products = [math.prod(sizes[place:]) for place in range(len(sizes))]
    written = signature.op.startswith(POINTWISE_PREFIX) and last in products
    return last if written else min(products[0], most)


def _limit_tables(op: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the buffers; a table [n, width] is replaced by its picked rows.

    A table is one of which another buffer has a row per index; of a kernel that selects rows, one as long as no other.
    """
    held = Counter(tensor.numel for tensor in tensors)
    lengths = Counter(tensor.shape[0] for tensor in tensors if tensor.shape)
    indices = [tensor.numel for tensor in tensors if tensor.dtype in ("int32", "int64")]

    def read(tensor: Tensor) -> Tensor:
        if len(tensor.shape) != 2 or held[tensor.numel] > 1:
            return tensor
        rows, width = tensor.shape
        selected = SELECT_NAME.search(op) and lengths[rows] == 1
        picked = [count for count in indices if count < rows and width > 1 and (selected or held[count * width])]
        return Tensor((max(picked), width), tensor.dtype) if picked else tensor

    return [read(tensor) for tensor in tensors]


def compute_template_work(signature: Signature) -> Columns | None:
    """Compute the work of a template's kernel; ``None`` if the buffers aren't enough.

    The signature has the kernel's arguments, under its own name.
    """
    if "flex_" in signature.op:
        return _infer_attention(signature)
    return _infer_gemm(signature, batched="bmm" in signature.op)


def _infer_gemm(signature: Signature, batched: bool) -> Columns | None:
    """Infer the GEMM from two operands first, apart from vectors, and the output last."""
    buffers = [tensor for tensor in signature.tensors if len(tensor.shape) > 1]
    if len(buffers) < 3:
        return None
    left, right, out = buffers[0], buffers[1], buffers[-1]
    batch = left.shape[0] if batched else 1
    k = math.isqrt(left.numel * right.numel // (out.numel * batch)) if out.numel else 0
    sizes = [tensor.numel // max(batch * k, 1) for tensor in (left, right)]
    fits = batch * k * sizes[0] == left.numel and batch * k * sizes[1] == right.numel
    if k == 0 or not fits or batch * sizes[0] * sizes[1] != out.numel:
        return None
    return {"batch": batch, "m": sizes[0], "n": sizes[1], "k": k}


def _infer_attention(signature: Signature) -> Columns | None:
    """Infer attention from query, key, value [batch, heads, tokens, width]; unmasked blocks of keys are integers.

    A bias of the scores is a buffer [.., queries, keys]. The number of unmasked blocks isn't recorded. The mask is
    assumed to be causal. The bounds are one block per query and all of them.
    """
    q, k = signature.get_shape(0), signature.get_shape(1)
    if q is None or k is None or len(q) != 4 or len(k) != 4:
        return None
    blocks = next((tensor.shape[-1] for tensor in signature.tensors[3:] if _is_block_list(tensor)), 1)
    columns = build_attention_columns(
        (q[0], q[2], q[1]), (k[0], k[2], k[1]), q[3], causal=blocks > 1, backward="backward" in signature.op
    )
    operands = {signature.get_shape(place) for place in range(3)}
    captured = [
        tensor
        for tensor in signature.tensors[3:]
        if tensor.shape[-2:] == (q[2], k[2]) and tensor.shape not in operands and not _is_block_list(tensor)
    ]
    columns |= build_mask_columns(captured, columns)
    return columns | {"work_low": 2 / blocks, "work_high": 2.0} if blocks > 1 else columns


def _is_block_list(tensor: Tensor) -> bool:
    return tensor.dtype == "int32" and len(tensor.shape) == 4
