"""Compute look-ups in embedding tables, and the updates of their rows, from how often each row is drawn.

    indices  7 7 2 7 9   of one table     5 rows are loaded: 3 from memory, 2 again, from the cache if it held them
                                          5 gradients are read back, 3 rows are changed

A kernel goes through one table after the other, so a cache only has to hold rows of one. Rows that lie in the host's
memory come over the link to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from math import sqrt

from tracekit.models.lookups import BRACKET, USUAL_PATTERN, IndexPattern, TablePart, get_part_distribution
from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, build_traffic_columns

FP32_BYTES = 4
MAX_CACHED = 1 << 14
"""Expectations that are kept: a job has many equal tables, which are looked up in each step."""
POSITION_BYTES = 4
"""Bytes of an index's original position; indices are sorted with it, to go over each row once."""
CACHED_FRACTION = 0.2
"""Share of a managed table's rows that FBGEMM's cache holds on the GPU, by default (``cache_load_factor``)."""
HOST_REREAD_FRACTION = 0.45
"""Share of the rows drawn again that come over the link again: of FBGEMM's look-ups in managed memory by an H100, 1.05
million in 434,000 different rows (NVIDIA/recsys-examples, the only measurement), at the rate of its updates."""


MAX_WARP_SEGMENT, BLOCK_WARPS = 32, 32
MAX_BLOCK_SEGMENT = 1024
"""Gradients of a row that one block sums up; of a row drawn more often, several blocks do at once
(``max_segment_length_per_cta`` in FBGEMM's ``embedding_backward_split_template.cu``)."""
LOADING_CLOCKS, UPDATING_CLOCKS = 400, 17_000
"""Clocks of a thread for each load that the next one waits for, and for a row that a warp updates; a block that does so
sums up twice. In eight V100 ranks of a DLRM with at most 2,000 indices (v100_dlrm_train) a warp's kernel takes 9 to 22
us, a block's 15 to 37; a warp's takes 12 on an A100 with 57,000 (a100_dlrm_control)."""

WARP_THREADS, THREAD_ELEMENTS = 32, 4
"""Of FBGEMM's kernels, which load four elements a thread; a warp has up to four groups of threads, each with a bag
(``FBGEMM_USE_SUBWARP_SHUFFLE`` in jinja_environment.py)."""
BAG_CLOCKS, ROW_CLOCKS = 2500, 1500
"""Clocks of FBGEMM's warp for a bag, and for each of its rows: in look-ups of 15 rows, 82 wide, 1,560 for each row on
an A100 full of warps (a100_dlrm_control), 2,240 on a V100 (v100_dlrm_test); of 10 rows on an H100 about 1,700
(torchrec#2365). Kernels with few bags take about as long for each row."""


class Placement(StrEnum):
    """Where a table's weights lie, by FBGEMM's names."""

    DEVICE = "device"
    MANAGED = "managed"
    MANAGED_CACHING = "managed_caching"


@dataclass(frozen=True, slots=True)
class TableLookup:
    """Look-ups in tables of one kind by one call.

    Attributes:
        rows: Rows of a table.
        width: Elements of a row.
        indices: Rows looked up in a table, with repetitions; the mean of a table.
        bags: Sums written for a table; as many as indices without sums.
        pattern: How the indices are distributed; None if nobody knows.
        placement: Where the weights lie.
        tables: Equal tables.
        part: Which rows of a larger table these are; None for all.
        cached_fraction: Share of the rows that a cache of managed tables holds.
    """

    rows: int
    width: float
    indices: float
    bags: float
    weight_bytes: float = 4.0
    pattern: IndexPattern | None = None
    placement: Placement = Placement.DEVICE
    tables: int = 1
    index_bytes: float = INDEX_BYTES
    part: TablePart | None = None
    cached_fraction: float = CACHED_FRACTION

    @property
    def row_bytes(self) -> float:
        """Bytes of a row."""
        return self.width * self.weight_bytes

    def move_to(self, placement: Placement) -> "TableLookup":
        """Return the look-ups with the weights elsewhere."""
        return replace(self, placement=placement)

    def expect_unique(self) -> float:
        """Expect the number of different rows drawn of a table."""
        return min(_expect_unique(self.pattern or USUAL_PATTERN, self.rows, self.part, self.indices), self.indices)

    def expect_missed(self) -> float:
        """Expect how many different rows drawn of a table aren't in its cache that has long been in use."""
        distribution = get_part_distribution(self.pattern or USUAL_PATTERN, self.rows, self.part)
        return min(distribution.expect_missed(self.indices, self.cached_fraction * self.rows), self.expect_unique())

    def expect_most_frequent(self) -> float:
        """Expect how often the most frequent row of a table is drawn."""
        distribution = get_part_distribution(self.pattern or USUAL_PATTERN, self.rows, self.part)
        return distribution.expect_most_frequent(self.indices)

    def expect_reuse_bytes(self) -> float:
        """Expect what a cache must hold so that half of the rows drawn again are found in it."""
        reuse_rows = _expect_reuse_rows(self.pattern or USUAL_PATTERN, self.rows, self.part, self.indices)
        return reuse_rows * self.row_bytes


@lru_cache(maxsize=MAX_CACHED)
def _expect_unique(pattern: IndexPattern, rows: int, part: TablePart | None, draws: float) -> float:
    return get_part_distribution(pattern, rows, part).expect_unique(draws)


@lru_cache(maxsize=MAX_CACHED)
def _expect_reuse_rows(pattern: IndexPattern, rows: int, part: TablePart | None, draws: float) -> float:
    return get_part_distribution(pattern, rows, part).expect_reuse_rows(draws)


def compute_lookup_columns(tables: Sequence[TableLookup], output_bytes: float = FP32_BYTES) -> Columns:
    """Compute a look-up of rows, summed up bag by bag.

    One kernel looks rows up in all ``tables``; ``output_bytes`` are those of an element of the sums.
    """
    return _bracket_bytes(tables, lambda known: _compute_lookup(known, output_bytes))


def compute_fbgemm_lookup(tables: Sequence[TableLookup], output_bytes: float = FP32_BYTES) -> Columns:
    """Compute a look-up by FBGEMM's kernel, in which a warp waits for one row of its bags after the other.

    One kernel looks rows up in all ``tables``; ``output_bytes`` are those of an element of the sums.
    """
    longest = max(BAG_CLOCKS + ROW_CLOCKS * one.indices / max(one.bags, 1) for one in tables)
    clocks = sum(
        one.tables * (BAG_CLOCKS * one.bags + ROW_CLOCKS * one.indices) / _count_bags_of_warp(one.width)
        for one in tables
    )
    waits = {"warp_clocks": float(clocks), "serial_clocks": round(longest)}
    return compute_lookup_columns(tables, output_bytes) | waits


def compute_cache_fill(tables: Sequence[TableLookup]) -> Columns:
    """Compute how the rows that a look-up needs come into the cache of tables in the host's memory.

    A cache that has just been filled with other rows lacks all of them, one that has long been in use the rarest. How
    far it is isn't known: the middle is likely, and the bounds of the work are both ends.
    """
    least, most = 0.0, 0.0
    for one in tables:
        even, skewed = (one, one) if one.pattern else [replace(one, pattern=pattern) for pattern in BRACKET]
        least += one.tables * one.row_bytes * skewed.expect_missed()
        most += one.tables * one.row_bytes * even.expect_unique()
    likely = sqrt(max(least, 1.0) * max(most, 1.0))
    indices = sum(one.tables * one.indices for one in tables)
    listed = sum(one.tables * one.indices * one.index_bytes for one in tables)
    columns = build_traffic_columns((round(indices), 1), flops=0, bytes_=round(likely + listed))
    bounds = {"work_low": max(least, 1.0) / likely, "work_high": max(most, 1.0) / likely}
    return columns | {"host_bytes": likely, "streamed_bytes": listed, "warp_clocks": 0.0} | bounds


def _count_bags_of_warp(width: float) -> int:
    """Count the bags that a warp sums up at once: 8 threads take rows of up to 32 elements, 16 of up to 64."""
    groups = WARP_THREADS * THREAD_ELEMENTS / max(width, 1)
    return next(count for count in (4, 2, 1) if count <= max(groups, 1))


def compute_update_columns(tables: Sequence[TableLookup], optimizer: str) -> Columns | None:
    """Compute the sum of each different row's gradients and its update; None for an unknown optimizer.

    One kernel updates all ``tables``; ``optimizer`` is a key of ``OPTIMIZER_STATE``.
    """
    if optimizer not in OPTIMIZER_STATE:
        return None
    columns = _bracket_bytes(tables, lambda known: _compute_update(known, optimizer))
    return columns | {"warp_clocks": 0.0}


def count_block_clocks(tables: Sequence[TableLookup]) -> int:
    """Count the clocks of the block that sums up the row drawn most often; 0 where warps take all rows."""
    most = max(one.expect_most_frequent() for one in tables)
    if most <= MAX_WARP_SEGMENT:
        return 0
    return 2 * UPDATING_CLOCKS + round(min(most, MAX_BLOCK_SEGMENT) / BLOCK_WARPS) * LOADING_CLOCKS


OPTIMIZER_STATE: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("dense", "sgd", "none"), (0, 0)),
    **dict.fromkeys(("rowwise_adagrad", "rowwise_weighted_adagrad"), (0, 1)),
    **dict.fromkeys(("adagrad", "lars_sgd"), (1, 0)),
    **dict.fromkeys(("adam", "lamb"), (2, 0)),
    **dict.fromkeys(("partial_rowwise_adam", "partial_rowwise_lamb"), (1, 1)),
    "rowwise_adagrad_with_counter": (0, 3),
}
"""Optimizers of FBGEMM: numbers in fp32 that they keep for each element, and for each row
(``fbgemm_gpu/codegen/genscript/optimizers.py``)."""
DENSE = "dense"
"""Rows of a gradient are written, nothing is updated."""


def compute_state_bytes(optimizer: str, width: float) -> float:
    """Return the bytes that an optimizer keeps for a row."""
    of_element, of_row = OPTIMIZER_STATE[optimizer]
    return FP32_BYTES * (of_element * width + of_row)


def _compute_lookup(tables: Sequence[TableLookup], output_bytes: float) -> Columns:
    indices, drawn, written, listed = 0.0, 0.0, 0.0, 0.0
    accessed, moved, hosted, reuse, distinct = 0.0, 0.0, 0.0, 0.0, 0.0
    for one in tables:
        unique, loaded = one.expect_unique() * one.row_bytes, one.indices * one.row_bytes
        if one.placement is Placement.MANAGED:
            hosted += one.tables * (unique + HOST_REREAD_FRACTION * (loaded - unique))
        else:
            moved += one.tables * unique
            accessed += one.tables * loaded
            reuse, distinct = max((reuse, distinct), (one.expect_reuse_bytes(), unique))
        indices += one.tables * one.indices
        drawn += one.tables * one.indices * one.width
        written += one.tables * one.bags * one.width * output_bytes
        listed += one.tables * (one.indices + one.bags) * one.index_bytes
    shape = (round(indices), round(drawn / max(indices, 1)))
    columns = build_traffic_columns(shape, flops=round(drawn), bytes_=round(moved + written + listed) + INDEX_BYTES)
    columns |= {"streamed_bytes": written + listed} | ({"host_bytes": hosted} if hosted else {})
    if accessed <= moved:
        return columns
    again = {"reuse_bytes": reuse, "distinct_bytes": distinct}
    return columns | again | {"accessed_bytes": accessed + written + listed + INDEX_BYTES}


def _compute_update(tables: Sequence[TableLookup], optimizer: str) -> Columns:
    indices, drawn, moved, hosted, listed = 0.0, 0.0, 0.0, 0.0, 0.0
    for one in tables:
        unique = one.tables * one.expect_unique()
        weights = unique * one.row_bytes * (1 if optimizer == DENSE else 2)
        state = unique * 2 * compute_state_bytes(optimizer, one.width)
        listed += one.tables * one.indices * (one.index_bytes + POSITION_BYTES)
        moved += one.tables * one.indices * one.width * FP32_BYTES
        indices += one.tables * one.indices
        drawn += one.tables * one.indices * one.width
        # The cache only holds weights. Reading and writing go over the link at once, one in each direction.
        moved += weights if one.placement is not Placement.MANAGED else 0
        moved += state if one.placement is Placement.DEVICE else 0
        hosted += weights / 2 if one.placement is Placement.MANAGED else 0
        hosted += state / 2 if one.placement is not Placement.DEVICE else 0
    shape = (round(indices), round(drawn / max(indices, 1)))
    columns = build_traffic_columns(shape, flops=round(4 * drawn), bytes_=round(moved + listed))
    return columns | {"streamed_bytes": listed} | ({"host_bytes": hosted} if hosted else {})


def _bracket_bytes(tables: Sequence[TableLookup], compute: Callable[[Sequence[TableLookup]], Columns]) -> Columns:
    """Compute columns; where nobody knows the distribution, also the least and the most bytes of likely ones."""
    columns = compute(tables)
    if all(one.pattern is not None for one in tables):
        return columns
    base = sum_traffic(columns)
    others = [
        sum_traffic(compute([one if one.pattern else replace(one, pattern=pattern) for one in tables]))
        for pattern in BRACKET
    ]
    if not base:
        return columns
    low, high = (end / base for end in (min(base, *others), max(base, *others)))
    return columns | {"work_low": low, "work_high": high} if low < high else columns


def sum_traffic(columns: Columns) -> float:
    """Return the bytes moved, those over the host's link included."""
    return float(columns["bytes"] or 0) + float(columns.get("host_bytes") or 0)
