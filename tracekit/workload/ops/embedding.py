"""Compute look-ups of rows in tables, with or without a sum into bags, and their gradients."""

import math

from tracekit.models.lookups import IndexPattern
from tracekit.workload.ops.memory_traffic import (
    INDEX_BYTES,
    PICKED,
    Columns,
    TrafficFormula,
    build_traffic_columns,
    leave_unread,
)
from tracekit.workload.ops.table_lookups import TableLookup, compute_lookup_columns
from tracekit.workload.signature import Signature

BAG_OPS = ("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
WARP_COLUMNS, BAG_WARPS = 32, 8192
"""Columns that a warp takes at once, and warps of the grid, however many bags there are."""
BAG_CLOCKS, BAG_LOAD_CLOCKS = 4600, 710
"""Clocks of a warp for its columns of a bag, and for each of the bag's rows, which the cache holds: chosen on the H200,
where 8,192 bags of 1 and of 20 rows, 128 wide, take 11.8 and 39.1 us (kernels/lookups)."""


def _make_row_lookup(indices: int, axis: int | None = None) -> TrafficFormula:
    """Make the formula of a look-up: a row of the first input per index; a table of fewer rows is read once.

    Args:
        indices: Input with the indices.
        axis: Input with the axis of the rows; without it the first axis.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        weight, index = signature.get_tensor(0), signature.get_tensor(indices)
        along = 0 if axis is None else signature.get_integer(axis) or 0
        if weight is None or index is None or along not in range(-len(weight.shape), len(weight.shape)):
            return None
        rows, cols = index.numel, weight.numel // max(weight.shape[along], 1)
        moved = (min(rows * cols, weight.numel) + rows * cols) * weight.get_item_bytes(item_bytes)
        return build_traffic_columns((rows, cols), flops=0, bytes_=moved + rows * index.get_item_bytes(INDEX_BYTES))

    return columns


def compute_bag_lookup(signature: Signature, item_bytes: int, pattern: IndexPattern | None = None) -> Columns | None:
    """Compute PyTorch's look-up in one table, summed up bag by bag; None for any other op.

    A warp sums up 32 columns of a bag after those of another. Each row's load waits for that of its index, as the
    compiler doesn't unroll the loop (ATen/native/cuda/EmbeddingBag.cu).

    Args:
        signature: Of the op; its third input has the bags' starts.
        item_bytes: Bytes per element where the signature has no type.
        pattern: How the indices are distributed; None if nobody knows.
    """
    if signature.op not in BAG_OPS:
        return None
    weight, index, offset = (signature.get_tensor(i) for i in range(3))
    if weight is None or index is None or offset is None or not weight.shape:
        return None
    width, bags = math.prod(weight.shape[1:]), offset.numel - bool(signature.get_value(7))
    bytes_ = weight.get_item_bytes(item_bytes)
    lookup = TableLookup(max(weight.shape[0], 1), width, index.numel, bags, bytes_, pattern)
    columns = compute_lookup_columns([lookup], output_bytes=bytes_)
    pieces = bags * math.ceil(width / WARP_COLUMNS)
    pooling = index.numel / max(bags, 1)
    piece_clocks = BAG_CLOCKS + BAG_LOAD_CLOCKS * pooling
    return columns | {
        "warp_clocks": pieces * piece_clocks,
        "serial_clocks": round(math.ceil(pieces / BAG_WARPS) * piece_clocks),
    }


def _compute_embedding_gradient(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute an embedding's gradient: the output's gradient read, and added to rows of the table's gradient."""
    gradient, indices = signature.get_tensor(0), signature.get_tensor(1)
    if gradient is None or indices is None:
        return None
    bytes_ = 2 * gradient.compute_bytes(item_bytes) + indices.numel * INDEX_BYTES
    return build_traffic_columns(gradient.shape, flops=gradient.numel, bytes_=bytes_)


TRAFFIC: dict[str, TrafficFormula] = {
    "aten::embedding": leave_unread(_make_row_lookup(1), PICKED),
    "aten::embedding_dense_backward": _compute_embedding_gradient,
    "aten::index_select": leave_unread(_make_row_lookup(2, axis=1), PICKED),
}
