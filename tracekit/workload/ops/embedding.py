"""Compute look-ups of rows in tables, with or without a sum into bags, and their gradients."""

import math

from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, TrafficFormula, build_traffic_columns
from tracekit.workload.signature import Signature

RESULT_BYTES = 4
"""Bytes of the result of a look-up in several tables: fp32 for tables of any type."""


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


def _compute_embedding_bag(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute PyTorch's look-up in one table: a row per index, summed per bag; the third input has the bags' starts."""
    weight, index, offset = (signature.get_tensor(i) for i in range(3))
    if weight is None or index is None or offset is None:
        return None
    cols = math.prod(weight.shape[1:])
    drawn, bags = index.numel * cols, offset.numel - bool(signature.get_value(7))
    moved = (min(drawn, weight.numel) + bags * cols) * weight.get_item_bytes(item_bytes)
    listed = index.compute_bytes(INDEX_BYTES) + offset.compute_bytes(INDEX_BYTES)
    return build_traffic_columns((index.numel, cols), flops=drawn, bytes_=moved + listed)


def _make_table_lookup(
    *, weights: int, tables: int, width: int, indices: int, rows: int | None = None
) -> TrafficFormula:
    """Make the formula of FBGEMM's look-up in several tables: a row per index, summed per sample and table.

    Tables with fewer rows than indices are read only once.

    Args:
        weights: Input with the elements of all tables.
        tables: Input with one entry per table.
        width: Input with the width of all tables together; the values of inputs aren't always recorded.
        indices: Input with the indices; the next input has the start of each sample's indices, and the end of the last
            one's.
        rows: Input with an entry per row of all tables, which gives the width if ``width`` doesn't.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        weight, table, index, offset = (signature.get_tensor(i) for i in (weights, tables, indices, indices + 1))
        if weight is None or table is None or index is None or offset is None or not table.numel:
            return None
        state = signature.get_tensor(rows) if rows is not None else None
        given = signature.get_value(width)
        if isinstance(given, int) and given:
            mean_width = given / table.numel
        elif state is not None and state.numel:
            mean_width = weight.numel / state.numel
        else:
            return None
        summed = (offset.numel - 1) * mean_width
        drawn = index.numel * mean_width
        listed = index.compute_bytes(INDEX_BYTES) + offset.compute_bytes(INDEX_BYTES)
        # Weights that are stored elsewhere, or cached, are an empty tensor here.
        read = min(drawn, weight.numel) if weight.numel else drawn
        bytes_ = round(read * weight.get_item_bytes(item_bytes) + summed * RESULT_BYTES) + listed
        return build_traffic_columns((index.numel, round(mean_width)), flops=round(drawn), bytes_=bytes_)

    return columns


def _compute_embedding_gradient(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute an embedding's gradient: the output's gradient read, and added to rows of the table's gradient."""
    gradient, indices = signature.get_tensor(0), signature.get_tensor(1)
    if gradient is None or indices is None:
        return None
    bytes_ = 2 * gradient.compute_bytes(item_bytes) + indices.numel * INDEX_BYTES
    return build_traffic_columns(gradient.shape, flops=gradient.numel, bytes_=bytes_)


TRAFFIC: dict[str, TrafficFormula] = {
    "aten::embedding": _make_row_lookup(1),
    "aten::_embedding_bag": _compute_embedding_bag,
    "aten::_embedding_bag_forward_only": _compute_embedding_bag,
    "fbgemm::split_embedding_codegen_lookup_adagrad_function": _make_table_lookup(
        weights=1, tables=5, width=7, indices=11
    ),
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function": _make_table_lookup(
        weights=1, tables=5, width=7, indices=11, rows=20
    ),
    **dict.fromkeys(
        (
            "fbgemm::split_embedding_codegen_forward_unweighted_cuda",
            "fbgemm::split_embedding_codegen_forward_weighted_cuda",
        ),
        _make_table_lookup(weights=0, tables=4, width=6, indices=8),
    ),
    "fbgemm::dense_embedding_codegen_forward_unweighted_cuda": _make_table_lookup(
        weights=0, tables=1, width=3, indices=5
    ),
    "fbgemm::dense_embedding_codegen_lookup_function": _make_table_lookup(weights=0, tables=1, width=3, indices=7),
    "aten::embedding_dense_backward": _compute_embedding_gradient,
    "aten::index_select": _make_row_lookup(2, axis=1),
}
