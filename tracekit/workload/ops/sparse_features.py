"""Compute the work of FBGEMM's ops on sparse features: indices of samples of several lengths, before any look-up.

    lengths of each feature and sample    2 0 1 | 1 3 1
    their indices, side by side           a b c | d e f g h

A permutation of the features moves their lengths and their indices. A warp moves those of one sample, however few. On
a V100 and an A100 it takes for 14 of them (951 features of 1,024 samples) what scattered elements take.
"""

import math

from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, TrafficFormula, build_traffic_columns
from tracekit.workload.ops.registry import FBGEMM, KernelFormula, op_kernels
from tracekit.workload.signature import Signature

COUNTER_BYTES = 4096
"""Bytes of the counters that a scan starts from; next to nothing."""
FURTHER_ELEMENT = 0.2
"""What a warp takes for an element beyond its first ones, as a part of that for one of those."""
MOVING_ELEMENTS, CHECKING_ELEMENTS = 25, 85
"""How many scattered elements of a copy take as long as a warp that moves a sample's indices, and how many of a
reduction as one that checks them."""


def make_scan(*inputs: int, times: float = 1.0) -> tuple[KernelFormula, ...]:
    """Make the formulas of a scan over some inputs, with a kernel that clears its counters.

    Args:
        inputs: Inputs whose elements are summed up.
        times: How many elements there are for each of these.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        scanned = [tensor for index in inputs for tensor in signature.get_tensors(index)]
        if not scanned:
            return None
        numel = math.ceil(times * sum(tensor.numel for tensor in scanned))
        moved = 2 * numel * int(scanned[0].get_item_bytes(item_bytes))
        return build_traffic_columns((numel,), flops=numel, bytes_=moved) | {"family": "reduction"}

    return (("ScanInit|CompactInit", build_counters), ("Scan|cumsum", columns))


def build_counters(signature: Signature, item_bytes: int) -> Columns:
    """Build the work of a kernel that clears counters."""
    del signature, item_bytes
    return build_traffic_columns((1,), flops=0, bytes_=COUNTER_BYTES) | {"family": "elementwise"}


def build_warps(segments: int, numel: int, bytes_: float, least: int = MOVING_ELEMENTS) -> Columns:
    """Build the work of warps that each go through a segment, short or long.

    The segments have ``numel`` elements together; ``least`` scattered elements take as long as a warp with next to
    nothing to do.
    """
    cols = round(least + FURTHER_ELEMENT * max(numel / max(segments, 1) - least, 0))
    columns = build_traffic_columns((segments, cols), flops=0, bytes_=round(bytes_))
    return columns | {"family": "copy", "indexed": True, "across": True}


def _permute_data(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the move of indices and weights; part of the features may be left out, or doubled."""
    permutation, lengths, values = (signature.get_tensor(index) for index in range(3))
    if permutation is None or lengths is None or values is None or not lengths.shape or not lengths.numel:
        return None
    segments = permutation.numel * (lengths.numel // lengths.shape[0])
    moved = signature.get_integer(4) or round(values.numel * segments / lengths.numel)
    weights = signature.get_tensors(3)
    each = values.get_item_bytes(item_bytes) + sum(one.get_item_bytes(item_bytes) for one in weights)
    listed = 2 * segments * lengths.get_item_bytes(item_bytes)
    return build_warps(segments, moved, 2 * moved * each + listed)


def _permute_lengths(signature: Signature, item_bytes: int) -> Columns | None:
    permutation, lengths = signature.get_tensor(0), signature.get_tensor(1)
    if permutation is None or lengths is None or not lengths.shape or not lengths.shape[0]:
        return None
    moved = permutation.numel * (lengths.numel // lengths.shape[0])
    bytes_ = 2 * moved * lengths.get_item_bytes(item_bytes) + permutation.compute_bytes(item_bytes)
    return build_traffic_columns((moved,), flops=0, bytes_=round(bytes_)) | {"family": "copy", "indexed": True}


PERMUTATION: tuple[KernelFormula, ...] = (
    (r"permute_(?:\dD_data|indices_weights)", _permute_data),
    (r"permute_(?:\dD_)?lengths", _permute_lengths),
    *make_scan(1),
)


def _check_bounds(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a check of indices against the tables' rows: a warp per table and sample reads them."""
    indices, offsets = signature.get_tensor(1), signature.get_tensor(2)
    if indices is None or offsets is None:
        return None
    read = indices.compute_bytes(INDEX_BYTES) + offsets.compute_bytes(INDEX_BYTES)
    return build_warps(max(offsets.numel - 1, 0), indices.numel, read, CHECKING_ELEMENTS) | {"family": "reduction"}


def _count_buckets(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute how many indices of each sample fall into each bucket: indices and lengths read, counts written."""
    lengths, indices, buckets = signature.get_tensor(0), signature.get_tensor(1), _get_buckets(signature)
    if lengths is None or indices is None or buckets is None:
        return None
    bytes_ = indices.compute_bytes(item_bytes) + (1 + buckets) * lengths.compute_bytes(item_bytes)
    return _build_scattered(indices.numel, bytes_)


def _fill_buckets(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the move of indices, weights and, if asked for, positions into buckets."""
    lengths, indices, buckets = signature.get_tensor(0), signature.get_tensor(1), _get_buckets(signature)
    if lengths is None or indices is None or buckets is None:
        return None
    is_block = signature.op.endswith("block_bucketize_sparse_features")
    weights = signature.get_tensors(6 if is_block else 4)
    written = sum(signature.get_value(flag) is True for flag in ((2, 3) if is_block else (2,)))
    each = sum(2 * one.get_item_bytes(item_bytes) for one in (indices, *weights))
    each += written * indices.get_item_bytes(item_bytes)
    listed = (1 + buckets) * lengths.compute_bytes(item_bytes)
    return _build_scattered(indices.numel, indices.numel * int(each) + listed)


def _get_buckets(signature: Signature) -> int | None:
    return signature.get_integer(5 if signature.op.endswith("block_bucketize_sparse_features") else 3)


def _build_scattered(numel: int, bytes_: float) -> Columns:
    columns = build_traffic_columns((numel,), flops=numel, bytes_=round(bytes_))
    return columns | {"family": "copy", "indexed": True, "across": True}


def _scan_buckets(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute one of two scans: over the lengths, and over those of all buckets; in the mean."""
    lengths, buckets = signature.get_tensor(0), _get_buckets(signature)
    if lengths is None or buckets is None:
        return None
    numel = lengths.numel * (1 + buckets) // 2
    moved = 2 * numel * lengths.get_item_bytes(item_bytes)
    return build_traffic_columns((numel,), flops=numel, bytes_=moved) | {"family": "reduction"}


def _place_buckets(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the place of each index behind its bucket: the mapping read, places written."""
    mapping = signature.get_tensor(2)
    if mapping is None:
        return None
    return _build_scattered(mapping.numel, 2 * mapping.compute_bytes(item_bytes))


BUCKETS: tuple[KernelFormula, ...] = (
    (r"ScanInit", build_counters),
    (r"Scan", _scan_buckets),
    (r"cuda_kernel1", _count_buckets),
    (r"cuda_kernel2", _fill_buckets),
)


def _make_range(size: int, offsets: int = 0) -> TrafficFormula:
    """Make the formula of the numbers from 0 on within each segment: offsets read, numbers written.

    Args:
        size: Input with the number of elements, as a number or as a tensor of so many.
        offsets: Input with the segments' starts.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        starts, like = signature.get_tensor(offsets), signature.get_tensor(size)
        numel = signature.get_integer(size) or (like.numel if like else 0)
        if starts is None or not numel:
            return None
        moved = (numel + starts.numel) * starts.get_item_bytes(item_bytes)
        return build_warps(starts.numel, numel, moved)

    return columns


def _sum_segments(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the sums of segments, whose starts count samples: values read, a sum of each segment written."""
    segments, values = signature.get_tensor(1), signature.get_tensor(2)
    if segments is None or values is None:
        return None
    sums = max(segments.numel - 1, 1)
    written = sums * values.get_item_bytes(item_bytes)
    bytes_ = values.compute_bytes(item_bytes) + segments.compute_bytes(item_bytes) + written
    shape = (sums, -(-values.numel // sums))
    return build_traffic_columns(shape, flops=values.numel, bytes_=bytes_) | {"family": "reduction"}


def _make_dense(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the move of values to where their indices say: all inputs read, the values written."""
    values = signature.get_tensor(0)
    if values is None:
        return None
    bytes_ = sum(tensor.compute_bytes(item_bytes) for tensor in signature.tensors) + values.compute_bytes(item_bytes)
    return build_traffic_columns((values.numel,), flops=0, bytes_=bytes_) | {"family": "copy"}


op_kernels(
    "permute_2D_sparse_data", "permute_1D_sparse_data", "permute_sparse_data", "permute_sparse_features",
    libraries=FBGEMM,
)(*PERMUTATION)  # fmt: skip
op_kernels(
    *(f"asynchronous_{kind}_cumsum" for kind in ("complete", "inclusive", "exclusive", "batched_complete")),
    "lengths_range", libraries=FBGEMM,
)(*make_scan(0))  # fmt: skip
op_kernels("bounds_check_indices", libraries=FBGEMM)((r"bounds_check_indices", _check_bounds))
op_kernels("block_bucketize_sparse_features", "bucketize_sparse_features", libraries=FBGEMM)(*BUCKETS)
op_kernels("populate_bucketized_permute", libraries=FBGEMM)(
    *make_scan(0), (r"populate_bucketized_permute", _place_buckets)
)
op_kernels("offsets_range", libraries=FBGEMM)((r"offsets_range", _make_range(1)))
op_kernels("expand_into_jagged_permute", libraries=FBGEMM)((r"expand_into_jagged_permute", _make_range(3, offsets=1)))
op_kernels("segment_sum_csr", libraries=FBGEMM)((r"segment_sum_csr", _sum_segments))
op_kernels("to_dense_representation", libraries=FBGEMM)(*make_scan(1), (r"to_dense_representation", _make_dense))
