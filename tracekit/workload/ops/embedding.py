"""Compute look-ups of rows in tables, with or without a sum into bags, and their gradients."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracekit.models.lookups import BRACKET, USUAL_PATTERN, IndexPattern
from tracekit.workload.ops.memory_traffic import (
    INDEX_BYTES,
    PICKED,
    Columns,
    TrafficFormula,
    build_traffic_columns,
)
from tracekit.workload.ops.registry import op
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

    The third input has the bags' starts; ``item_bytes`` count where the signature has no type.
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


@op("aten::embedding_dense_backward", family="embedding")
def _compute_embedding_gradient(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute an embedding's gradient: the output's gradient read, and added to rows of the table's gradient."""
    gradient, indices = signature.get_tensor(0), signature.get_tensor(1)
    if gradient is None or indices is None:
        return None
    bytes_ = 2 * gradient.compute_bytes(item_bytes) + indices.numel * INDEX_BYTES
    return build_traffic_columns(gradient.shape, flops=gradient.numel, bytes_=bytes_)


op("aten::embedding", family="embedding", unread=PICKED)(_make_row_lookup(1))
op("aten::index_select", family="embedding", unread=PICKED)(_make_row_lookup(2, axis=1))


TABLE_ROWS_ARGUMENT = {
    "aten::embedding_dense_backward": 2,
    "aten::_embedding_bag_dense_backward": 5,
    "aten::_embedding_bag_backward": 6,
}
"""Ops, and the argument with the number of the table's rows; the first two are the gradient and the indices."""
INDICES = 1
MAX_PART_INDICES = 10
SUM_BYTES = 4
"""Bytes of a part's sum, in fp32."""
SUMMING_CLOCKS, LISTING_CLOCKS = 125, 13
"""Clocks that a thread takes for each part of its segment, where it sums them and where it lists them: 90 to 165 and 13
to 14 on an H200, at 1.05 and 1.2 (predictors/training/measured/h200-sxm/lookups.csv)."""
COUNTER_BYTES = 4096
"""Bytes of the counters that sorting and scanning start from; next to nothing."""


@dataclass(frozen=True, slots=True)
class SortedIndices:
    """Expected segments of the sorted indices.

    Attributes:
        width: Elements of a row.
        item_bytes: Bytes of an element of the gradients.
        segments: Different rows among the indices.
        parts: Parts of all segments.
        longest: Parts of the longest segment.
    """

    indices: int
    index_bytes: int
    width: int
    item_bytes: int
    segments: int
    parts: int
    longest: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the gradients."""
        return self.width * self.item_bytes


def compute_gradient_work(
    signature: Signature, kernel: str, item_bytes: int, pattern: IndexPattern | None = None
) -> Columns | None:
    """Compute the work of one kernel of a sorted gradient; ``None`` for other ops and kernels.

    ``item_bytes`` count where the signature has no type; without ``pattern`` the other distributions are the bounds.
    """
    if signature.op not in TABLE_ROWS_ARGUMENT:
        return None
    build = next((build for pattern, build in KERNELS if re.search(pattern, kernel)), None)
    if build is None:
        return None
    usual = _expect_segments(signature, item_bytes, pattern or USUAL_PATTERN)
    if usual is None:
        return None
    columns = build(usual)
    if pattern is not None:
        return columns
    bounds = (_expect_segments(signature, item_bytes, likely) for likely in BRACKET)
    others = [build(indices) for indices in bounds if indices is not None]
    bytes_, clocks = (_compare_work(name, others, columns) for name in ("bytes", "serial_clocks"))
    # Even indices leave no thread with more to do than others, but not fewer bytes: only skewed ones do.
    low, high = min(1.0, *bytes_), max(1.0, *bytes_, *clocks)
    return columns | {"work_low": low, "work_high": high} if low < high else columns


def _compare_work(name: str, others: Sequence[Columns], usual: Columns) -> list[float]:
    """Return the ratios of a column of others to that of the usual distribution."""
    base = usual.get(name)
    return [float(other[name] or 0) / float(base) for other in others] if base else []


def _expect_segments(signature: Signature, item_bytes: int, pattern: IndexPattern) -> SortedIndices | None:
    gradient, indices = signature.get_tensor(0), signature.get_tensor(INDICES)
    rows = signature.get_integer(TABLE_ROWS_ARGUMENT[signature.op])
    if gradient is None or indices is None or not gradient.shape or not indices.numel:
        return None
    # A table of unknown size counts as one of as many rows as there are indices.
    drawn = pattern.get_distribution(rows or indices.numel)
    most = drawn.expect_most_frequent(indices.numel)
    return SortedIndices(
        indices=indices.numel,
        index_bytes=int(indices.get_item_bytes(INDEX_BYTES)),
        width=gradient.shape[-1],
        item_bytes=int(gradient.get_item_bytes(item_bytes)),
        segments=max(round(drawn.expect_unique(indices.numel)), 1),
        parts=max(round(drawn.expect_parts(indices.numel, MAX_PART_INDICES)), 1),
        longest=-(-round(most) // MAX_PART_INDICES),
    )


def _build_pass(indices: SortedIndices, per_index: int, per_segment: int = 0, per_part: int = 0) -> Columns:
    """Build a pass over the indices, segments and parts, with so many accesses of an index's size for each.

    It starts as quickly as an elementwise kernel, not as a look-up.
    """
    accesses = per_index * indices.indices + per_segment * indices.segments + per_part * indices.parts
    columns = build_traffic_columns((indices.indices,), flops=0, bytes_=accesses * indices.index_bytes)
    return columns | {"family": "elementwise"}


def _build_sorting_pass(indices: SortedIndices) -> Columns:
    """Build a pass that reads and writes the indices with their positions, block after block."""
    return _build_pass(indices, 4) | {"family": "reduction"}


def _build_part_list(indices: SortedIndices) -> Columns:
    """Build the list of all parts' first indices, written by a thread for each segment."""
    return _build_pass(indices, 0, 3, 1) | {"serial_clocks": indices.longest * LISTING_CLOCKS}


def _build_part_sums(indices: SortedIndices) -> Columns:
    """Build the sums of all parts: rows of the gradient are picked, sums written."""
    listed = 2 * indices.indices * indices.index_bytes
    moved = indices.indices * indices.row_bytes + indices.parts * indices.width * SUM_BYTES + listed
    return _build_scattered(indices.indices, indices.width, moved)


def _build_segment_sums(indices: SortedIndices) -> Columns:
    """Build the sums of all segments: sums of parts are read, rows of the table's gradient written."""
    moved = indices.parts * indices.width * SUM_BYTES + indices.segments * indices.row_bytes
    columns = _build_scattered(indices.parts, indices.width, moved)
    return columns | {"serial_clocks": indices.longest * SUMMING_CLOCKS}


def _build_scattered(rows: int, width: int, bytes_: int) -> Columns:
    """Build a kernel that looks up where each element lies."""
    columns = build_traffic_columns((rows, width), flops=rows * width, bytes_=bytes_)
    return columns | {"indexed": True, "across": True}


def _build_counters(indices: SortedIndices) -> Columns:
    del indices
    return build_traffic_columns((1,), flops=0, bytes_=COUNTER_BYTES) | {"family": "memset"}


KERNELS: tuple[tuple[str, Callable[[SortedIndices], Columns]], ...] = (
    (r"elementwise_kernel_with_index", lambda indices: _build_pass(indices, 1)),
    (r"RadixSortHistogram", lambda indices: _build_pass(indices, 1)),
    (r"RadixSort(?:Onesweep|SingleTile)", _build_sorting_pass),
    (r"RadixSortExclusiveSum|(?:Compact|Scan)Init|compute_num_of_partial", _build_counters),
    (r"UniqueByKey", lambda indices: _build_pass(indices, 1, 2) | {"family": "reduction"}),
    (r"krn_partials_per_segment|DeviceScanKernel", lambda indices: _build_pass(indices, 0, 2)),
    (r"krn_partial_segment_offset", _build_part_list),
    (r"compute_grad_weight", _build_part_sums),
    (r"sum_and_scatter", _build_segment_sums),
)
"""Kernels by their names, and what builds their work."""
