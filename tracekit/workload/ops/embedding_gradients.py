"""Compute the work of the kernels that sum up the gradient of an embedding table, as PyTorch's CUDA code has them.

The indices are sorted, so that those of one row lie side by side: a segment. Each segment is cut into parts of at most
ten indices. A first kernel sums the gradients of each part, a second one the parts of each segment
(aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu).

    indices    7 2 7 7 2      sorted    2 2 | 7 7 7      segments  2, 7
    gradients  a b c d e                b e | a c d      sums      b + e, a + c + d

One thread goes through all parts of a segment, element by element of its row. So the row that is drawn most often sets
the time of skewed indices. How they are distributed isn't recorded: ``models.lookups.USUAL_ALPHA`` is assumed, and
even and very skewed ones are the bounds.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracekit.models.lookups import BRACKET, USUAL_PATTERN, IndexPattern
from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, build_traffic_columns
from tracekit.workload.signature import Signature

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
        indices: Number of indices.
        index_bytes: Bytes of an index.
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

    Args:
        signature: The op.
        kernel: The kernel's name.
        item_bytes: Bytes per element where the signature has no type.
        pattern: How indices are distributed; ``None`` if nobody knows, so that others are the bounds.
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
