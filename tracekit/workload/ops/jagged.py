"""Compute the work of FBGEMM's ops on jagged tensors: rows of all samples side by side, with the starts of each one's.

values [rows, width]    a a a | b | c c        padded, [samples, most rows, width]    a a a  b . .  c c .
"""

import math

from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, TrafficFormula, build_traffic_columns, sum_bytes
from tracekit.workload.ops.registry import FBGEMM, KernelFormula, op_kernels
from tracekit.workload.ops.sparse_features import make_scan
from tracekit.workload.signature import Signature

ASSUMED_FILL = 0.5
"""Part of a padded tensor that holds rows, where nothing tells their number; it lies between a tenth and all."""
MIN_FILL = 0.1
PLACE_BYTES = 8
"""Bytes of where a row goes to: its sample and its place there."""


def _build(shape: tuple[int, ...], bytes_: float, flops: int = 0) -> Columns:
    return build_traffic_columns(shape, flops=flops, bytes_=round(bytes_)) | {"family": "elementwise"}


def _pad(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a padded tensor: the rows read, all of it written."""
    values, offsets, most = signature.get_tensor(0), signature.get_tensors(1), _get_most_rows(signature)
    if values is None or not offsets or most is None:
        return None
    width = math.prod(values.shape[1:])
    written = (offsets[0].numel - 1) * most * width
    read = min(values.numel, written)
    return _build((written // max(width, 1), width), (read + written) * values.get_item_bytes(item_bytes))


def _get_most_rows(signature: Signature) -> int | None:
    several = signature.get_integers(2)
    return math.prod(several) if several else signature.get_integer(2)


def _make_compaction(total: int) -> TrafficFormula:
    """Make the formula of a jagged tensor from a padded one: its rows read and written.

    Args:
        total: Input with their number, which may be missing.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        padded, rows = signature.get_tensor(0), signature.get_integer(total)
        if padded is None or not padded.shape:
            return None
        width = padded.shape[-1]
        most = padded.numel // max(width, 1)
        kept = rows or math.ceil(ASSUMED_FILL * most)
        found = _build((kept, width), 2 * kept * width * padded.get_item_bytes(item_bytes))
        if rows:
            return found
        return found | {"work_low": MIN_FILL / ASSUMED_FILL, "work_high": 1 / ASSUMED_FILL}

    return columns


def _make_combination(values: int, *, dense: tuple[int, ...] = (), jagged: int = 1) -> TrafficFormula:
    """Make the formula of a jagged tensor combined with padded ones, of which only the rows that it has are read.

    Args:
        values: Input with its rows.
        dense: Padded inputs that are gone through as a whole.
        jagged: How often something of the jagged tensor's size is read or written beside itself.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        rows, whole = signature.get_tensor(values), [signature.get_tensor(index) for index in dense]
        if rows is None or not rows.shape or None in whole:
            return None
        padded = sum(tensor.numel for tensor in whole if tensor is not None)
        numel = max(rows.numel, padded)
        moved = (1 + jagged) * rows.numel + 2 * padded
        width = rows.shape[-1]
        return _build((numel // max(width, 1), width), moved * rows.get_item_bytes(item_bytes), numel)

    return columns


def _find_rows(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute where each row goes to, for the kernel that follows: rows of the first input, or as many as are given."""
    values, offsets = signature.get_tensor(0), signature.get_tensors(1)
    if values is None or not values.shape or not offsets:
        return None
    rows = signature.get_integer(2) or math.prod(values.shape[:-1])
    return _build((rows,), rows * PLACE_BYTES + offsets[0].compute_bytes(item_bytes))


def _make_selection(*, passes: int, total: int) -> TrafficFormula:
    """Make the formula of samples chosen by indices: values, indices, starts before and behind.

    Args:
        passes: How often each row is read or written.
        total: Input with the number of rows; without it the samples count as equally long.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        values, indices, starts = (signature.get_tensor(index) for index in range(3))
        if values is None or indices is None or starts is None or not values.shape:
            return None
        width = math.prod(values.shape[1:])
        mean = values.shape[0] * indices.numel / max(starts.numel, 1)
        rows = signature.get_integer(total) or math.ceil(mean)
        found = _build((rows, width), passes * rows * width * values.get_item_bytes(item_bytes))
        return found | {"family": "copy"}

    return columns


def _select_keys(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute samples of several features chosen by one list of indices: values, lengths, offsets, indices, samples."""
    values, indices, samples = signature.get_tensor(0), signature.get_tensor(3), signature.get_integer(4)
    if values is None or indices is None or not samples:
        return None
    weights = signature.get_tensors(5)
    chosen = signature.get_integer(6) or math.ceil(values.numel * indices.numel / samples)
    each = sum(2 * one.get_item_bytes(item_bytes) for one in (values, *weights))
    return _build((chosen,), chosen * each) | {"family": "copy"}


def _select_lengths(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the lengths of the chosen samples and their sums so far."""
    lengths, indices, samples = signature.get_tensor(1), signature.get_tensor(3), signature.get_integer(4)
    if lengths is None or indices is None or not samples:
        return None
    chosen = lengths.numel // samples * indices.numel
    return _build((chosen,), 3 * chosen * lengths.get_item_bytes(item_bytes)) | {"family": "reduction"}


def _stack(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute one of the padded tensors of several features, in the mean."""
    values, lengths, most = signature.get_tensor(0), signature.get_tensor(1), signature.get_integers(3)
    if values is None or lengths is None or not lengths.shape or not most:
        return None
    width = math.prod(values.shape[1:])
    written = lengths.shape[-1] * sum(most) * width / len(most)
    moved = written + min(values.numel / len(most), written)
    return _build((round(written / max(width, 1)), width), moved * values.get_item_bytes(item_bytes))


def _multiply_by_dense(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute each sample's rows [rows, k] times its matrix [k, n]."""
    rows, matrices = signature.get_tensor(0), signature.get_tensor(2)
    if rows is None or matrices is None or len(rows.shape) < 2 or len(matrices.shape) != 3:
        return None
    written = rows.shape[0] * matrices.shape[2]
    moved = (rows.numel + matrices.numel + written) * rows.get_item_bytes(item_bytes)
    return _build((rows.shape[0], matrices.shape[2]), moved, 2 * rows.numel * matrices.shape[2])


def _multiply_jagged(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute each sample's rows [rows, m] transposed times others [rows, n]."""
    left, right, offsets = signature.get_tensor(0), signature.get_tensor(1), signature.get_tensor(2)
    if left is None or right is None or offsets is None or len(left.shape) < 2 or len(right.shape) < 2:
        return None
    m, n, samples = left.shape[1], right.shape[1], offsets.numel - 1
    moved = (left.numel + right.numel + samples * m * n) * left.get_item_bytes(item_bytes)
    return _build((samples * m, n), moved, 2 * left.numel * n)


PADDING: tuple[KernelFormula, ...] = ((r"jagged|pad", _pad), *make_scan(1))
COMPACTION: tuple[KernelFormula, ...] = ((r"opt_search", _find_rows), (r"jagged", _make_compaction(2)), *make_scan(1))


def _combine(formula: TrafficFormula) -> tuple[KernelFormula, ...]:
    return ((r"opt_search", _find_rows), (r"jagged", formula))


op_kernels(
    "jagged_to_padded_dense", "jagged_to_padded_dense_forward", "jagged_2d_to_dense", "jagged_1d_to_dense",
    libraries=FBGEMM,
)(*PADDING)  # fmt: skip
op_kernels("pack_segments", "pack_segments_v2", libraries=FBGEMM)((r"Scan|cumsum", make_scan(1)[1][1]), *PADDING)
op_kernels(
    "jagged_to_padded_dense_backward", "dense_to_jagged", "dense_to_jagged_forward", libraries=FBGEMM,
)(*COMPACTION)  # fmt: skip
op_kernels("pack_segments_backward", libraries=FBGEMM)((r"unpack|segments", _make_compaction(2)), *make_scan(1))
op_kernels(
    "stacked_jagged_2d_to_dense", "stacked_jagged_2d_to_dense_forward", "stacked_jagged_1d_to_dense",
    libraries=FBGEMM,
)(*make_scan(1), (r"jagged", _stack))  # fmt: skip
op_kernels("jagged_dense_elementwise_add", libraries=FBGEMM)(*_combine(_make_combination(0, dense=(2,), jagged=0)))
op_kernels(
    "jagged_dense_elementwise_add_jagged_output", "jagged_dense_elementwise_mul",
    "jagged_dense_elementwise_mul_forward", "jagged_softmax_backward", libraries=FBGEMM,
)(*_combine(_make_combination(0, jagged=2)))  # fmt: skip
op_kernels(
    "jagged_dense_dense_elementwise_add_jagged_output",
    "jagged_dense_dense_elementwise_add_jagged_output_forward", libraries=FBGEMM,
)(*_combine(_make_combination(0, jagged=3)))  # fmt: skip
op_kernels("jagged_dense_elementwise_mul_backward", libraries=FBGEMM)(
    (r"opt_search", _find_rows),
    (r"jagged_jagged_elementwise_dense_output", _make_combination(3, dense=(2,), jagged=1)),
    (r"jagged", _make_combination(0, jagged=2)),
)
op_kernels(
    "jagged_index_select", "jagged_index_select_2d_forward", "jagged_index_select_2d_forward_v2",
    libraries=FBGEMM,
)((r"jagged_index_select", _make_selection(passes=2, total=4)), *make_scan(1))  # fmt: skip
op_kernels("jagged_index_add_2d_forward", "jagged_index_add_2d_forward_v2", libraries=FBGEMM)(
    (r"jagged_index_add", _make_selection(passes=3, total=4))
)
op_kernels("keyed_jagged_index_select_dim1", libraries=FBGEMM)(
    (r"index_select_scalar_cumsum", _select_lengths), (r"keyed_jagged_index_(?:select|add)_dim1", _select_keys)
)
op_kernels("jagged_dense_bmm", "jagged_dense_bmm_forward", libraries=FBGEMM)((r"jagged_dense_bmm", _multiply_by_dense))
op_kernels("jagged_jagged_bmm", "jagged_jagged_bmm_forward", libraries=FBGEMM)((r"jagged_jagged_bmm", _multiply_jagged))
op_kernels("jagged_softmax", "jagged_softmax_forward", libraries=FBGEMM)(*_combine(_make_combination(0)))


def _move(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a move of all that the first input holds."""
    moved = signature.get_tensors(0)
    return _build_move(moved[0].shape, 2 * sum_bytes(moved, item_bytes)) if moved else None


def _build_move(shape: tuple[int, ...], bytes_: float) -> Columns:
    return build_traffic_columns(shape, flops=0, bytes_=round(bytes_)) | {"family": "copy", "indexed": False}


def _regroup(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute columns of several inputs in other groups: as many are read as written, and some may be left out."""
    inputs, widths = signature.get_tensors(0), signature.get_integers(4)
    if not inputs or not inputs[0].shape:
        return None
    width = sum(widths) if widths else sum(tensor.shape[-1] for tensor in inputs)
    samples = inputs[0].numel // max(inputs[0].shape[-1], 1)
    return _build_move((samples, width), 2 * samples * width * inputs[0].get_item_bytes(item_bytes))


def _select_group(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute rows of several tensors chosen by indices, a list of them for each; all tensors come first."""
    tensors, count = signature.get_tensors(0), signature.get_integer(1)
    listed = tensors[count:] if count else signature.get_tensors(1)
    sources = tensors[:count] if count else tensors
    if not sources or not listed:
        return None
    moved = [
        (index.numel, math.prod(source.shape[1:]), source.get_item_bytes(item_bytes))
        for source, index in zip(sources, listed, strict=False)
    ]
    elements = sum(rows * width for rows, width, _ in moved)
    bytes_ = sum(2 * rows * width * size for rows, width, size in moved)
    rows = sum(rows for rows, _, _ in moved)
    return _build_move((rows, elements // max(rows, 1)), bytes_ + rows * INDEX_BYTES) | {
        "family": "embedding",
        "indexed": True,
    }


def _select_batch(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the same of tensors that lie in one, whose rows, columns and numbers of indices are listed."""
    source = signature.get_tensor(0)
    chosen, widths = signature.get_integers(1), signature.get_integers(3)
    if source is None or not chosen or not widths or len(chosen) != len(widths):
        return None
    elements, rows = sum(map(math.prod, zip(chosen, widths, strict=True))), sum(chosen)
    bytes_ = 2 * elements * source.get_item_bytes(item_bytes) + rows * INDEX_BYTES
    return _build_move((rows, elements // max(rows, 1)), bytes_) | {"family": "embedding", "indexed": True}


op_kernels(
    "recat_embedding_grad_output", "recat_embedding_grad_output_mixed_D",
    "recat_embedding_grad_output_mixed_D_batch", libraries=FBGEMM,
)((r"recat_copy", _move))  # fmt: skip
op_kernels(
    *(f"permute_{kind}pooled_embs{how}" for kind in ("", "duplicate_") for how in ("", "_auto_grad")),
    libraries=FBGEMM,
)((r"permute_pooled_embs", _move))  # fmt: skip
op_kernels(
    "permute_multi_embedding", "permute_multi_embedding_function", "regroup_keyed_tensor", libraries=FBGEMM,
)((r"permute_multi_embs", _regroup))  # fmt: skip
op_kernels("group_index_select_dim0", "group_index_select_dim0_gpu_impl", libraries=FBGEMM)(
    (r"group_index_select_or_add", _select_group)
)
op_kernels("batch_index_select_dim0", libraries=FBGEMM)((r"batch_index_select_dim0", _select_batch))
