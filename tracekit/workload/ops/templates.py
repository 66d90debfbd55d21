"""What Inductor's Triton kernels do, from the buffers that they are called with; some are made from its templates.

A buffer has the shape that it was made with, which may be another view of the operand, transposed or with more axes:
only its number of elements counts. Of operands with m k and k n elements and an output of m n, that tells all three.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

from tracekit.workload.ops.attention import of_heads
from tracekit.workload.ops.vector import Columns, columns_of, largest_of, size_of
from tracekit.workload.signature import Signature, Tensor

PARTS = ((re.compile(r"_select_(?!backward|scatter)"), 1), (re.compile(r"_slice_(?!backward|scatter)"), 2))
"""Reads of a tensor one index along an axis, or a slice, of which two may be read at once, as by gated units: how many
elements of it, at most, for each that the kernel goes over."""

POINTWISE = "triton_poi_"


def moved(signature: Signature, item_bytes: int) -> Columns:
    """Each buffer read or written once; of one that is indexed or sliced no more than the kernel can reach.

    A table from which rows are looked up counts a row per index.

    Args:
        signature: The kernel's arguments; the whole numbers among them say how many elements it goes over.
        item_bytes: Bytes per element of buffers without a type.
    """
    each = next((count for pattern, count in PARTS if pattern.search(signature.op)), None)
    tensors = _looked_up(signature.tensors)
    largest = largest_of(tensors)
    over = _gone_over(signature, tensors[-1].numel, largest.numel)
    if each is None or over is None:
        return columns_of(largest.shape, flops=largest.numel, bytes_=size_of(tensors, item_bytes))
    bytes_ = sum(min(tensor.stored, each * over) * tensor.item_bytes(item_bytes) for tensor in tensors)
    return columns_of(largest.shape, flops=over, bytes_=bytes_)


def _gone_over(signature: Signature, last: int, most: int) -> int | None:
    """Elements that a kernel goes over, at most those of its largest buffer; ``None`` where no number tells.

    The sizes come last. Before them are numbers of any meaning, such as the axes of dynamic shapes; what is pointwise
    goes over the elements of what it writes, mostly the last buffer.
    """
    values = [signature.value(index) for index in range(len(signature.dims))]
    sizes = [value for value in values if isinstance(value, int) and value > 0]
    if not sizes:
        return None
    products = [math.prod(sizes[place:]) for place in range(len(sizes))]
    written = signature.op.startswith(POINTWISE) and last in products
    return last if written else min(products[0], most)


def _looked_up(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Buffers; of a table [n, width] the rows picked, where another buffer has one of that width for each index."""
    held = Counter(tensor.numel for tensor in tensors)
    indices = [tensor.numel for tensor in tensors if tensor.dtype in ("int32", "int64")]

    def read(tensor: Tensor) -> Tensor:
        if len(tensor.shape) != 2 or held[tensor.numel] > 1:
            return tensor
        rows, width = tensor.shape
        picked = [count for count in indices if count < rows and width > 1 and held[count * width]]
        return Tensor((max(picked), width), tensor.dtype) if picked else tensor

    return [read(tensor) for tensor in tensors]


def work(signature: Signature) -> Columns | None:
    """The work of a template's kernel; ``None`` if the buffers don't tell.

    Args:
        signature: The kernel's arguments, under its own name.
    """
    if "flex_" in signature.op:
        return _attention(signature)
    return _product(signature, batched="bmm" in signature.op)


def _product(signature: Signature, batched: bool) -> Columns | None:
    """Two operands first, but for vectors, and the output last."""
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


def _attention(signature: Signature) -> Columns | None:
    """Query, key, value [batch, heads, tokens, width]; the blocks of keys that a mask leaves are integers.

    How many it leaves isn't recorded. It is taken for causal, and at least one block for each query and at most all of
    them is the bracket.
    """
    q, k = signature.shape(0), signature.shape(1)
    if q is None or k is None or len(q) != 4 or len(k) != 4:
        return None
    blocks = next((tensor.shape[-1] for tensor in signature.tensors[3:] if _lists_blocks(tensor)), 1)
    columns = of_heads(
        (q[0], q[2], q[1]), (k[0], k[2], k[1]), q[3], causal=blocks > 1, backward="backward" in signature.op
    )
    return columns | {"work_low": 2 / blocks, "work_high": 2.0} if blocks > 1 else columns


def _lists_blocks(tensor: Tensor) -> bool:
    return tensor.dtype == "int32" and len(tensor.shape) == 4
