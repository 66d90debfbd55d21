"""Compute the work of FBGEMM's ops on jagged tensors: rows of all samples side by side, with the starts of each one's.

values [rows, width]    a a a | b | c c        padded, [samples, most rows, width]    a a a  b . .  c c .
"""

import math

from tracekit.workload.ops.memory_traffic import Columns, TrafficFormula, build_traffic_columns
from tracekit.workload.ops.sparse_features import KernelFormulas, make_scan
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


PADDING: KernelFormulas = ((r"jagged|pad", _pad), *make_scan(1))
COMPACTION: KernelFormulas = ((r"opt_search", _find_rows), (r"jagged", _make_compaction(2)), *make_scan(1))


def _combine(formula: TrafficFormula) -> KernelFormulas:
    return ((r"opt_search", _find_rows), (r"jagged", formula))


KERNELS: dict[str, KernelFormulas] = {
    **dict.fromkeys(
        ("jagged_to_padded_dense", "jagged_to_padded_dense_forward", "jagged_2d_to_dense", "jagged_1d_to_dense"),
        PADDING,
    ),
    **dict.fromkeys(("pack_segments", "pack_segments_v2"), ((r"Scan|cumsum", make_scan(1)[1][1]), *PADDING)),
    **dict.fromkeys(("jagged_to_padded_dense_backward", "dense_to_jagged", "dense_to_jagged_forward"), COMPACTION),
    "pack_segments_backward": ((r"unpack|segments", _make_compaction(2)), *make_scan(1)),
    **dict.fromkeys(
        ("stacked_jagged_2d_to_dense", "stacked_jagged_2d_to_dense_forward", "stacked_jagged_1d_to_dense"),
        (*make_scan(1), (r"jagged", _stack)),
    ),
    "jagged_dense_elementwise_add": _combine(_make_combination(0, dense=(2,), jagged=0)),
    **dict.fromkeys(
        (
            "jagged_dense_elementwise_add_jagged_output",
            "jagged_dense_elementwise_mul",
            "jagged_dense_elementwise_mul_forward",
        ),
        _combine(_make_combination(0, jagged=2)),
    ),
    **dict.fromkeys(
        (
            "jagged_dense_dense_elementwise_add_jagged_output",
            "jagged_dense_dense_elementwise_add_jagged_output_forward",
        ),
        _combine(_make_combination(0, jagged=3)),
    ),
    "jagged_dense_elementwise_mul_backward": (
        (r"opt_search", _find_rows),
        (r"jagged_jagged_elementwise_dense_output", _make_combination(3, dense=(2,), jagged=1)),
        (r"jagged", _make_combination(0, jagged=2)),
    ),
    **dict.fromkeys(
        ("jagged_index_select", "jagged_index_select_2d_forward", "jagged_index_select_2d_forward_v2"),
        ((r"jagged_index_select", _make_selection(passes=2, total=4)), *make_scan(1)),
    ),
    **dict.fromkeys(
        ("jagged_index_add_2d_forward", "jagged_index_add_2d_forward_v2"),
        ((r"jagged_index_add", _make_selection(passes=3, total=4)),),
    ),
    "keyed_jagged_index_select_dim1": (
        (r"index_select_scalar_cumsum", _select_lengths),
        (r"keyed_jagged_index_(?:select|add)_dim1", _select_keys),
    ),
    **dict.fromkeys(("jagged_dense_bmm", "jagged_dense_bmm_forward"), ((r"jagged_dense_bmm", _multiply_by_dense),)),
    **dict.fromkeys(("jagged_jagged_bmm", "jagged_jagged_bmm_forward"), ((r"jagged_jagged_bmm", _multiply_jagged),)),
    **dict.fromkeys(("jagged_softmax", "jagged_softmax_forward"), _combine(_make_combination(0))),
    "jagged_softmax_backward": _combine(_make_combination(0, jagged=2)),
}
"""Ops without their library's name, and their kernels."""
