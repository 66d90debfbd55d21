"""Look-ups of rows in tables, summed into bags or not, and their gradients."""

import math

from tracekit.workload.ops.vector import INDEX_BYTES, Columns, Traffic, columns_of
from tracekit.workload.signature import Signature

SUM_BYTES = 4
"""Of a look-up in several tables the result, fp32 whatever they are in."""


def _rows(indices: int, axis: int | None = None) -> Traffic:
    """A row of the first input read and written for each of ``indices``; a table of fewer rows is read once.

    Args:
        indices: Input with the indices.
        axis: Input that tells along which axis rows follow each other; without it the first.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        weight, index = signature.tensor(0), signature.tensor(indices)
        along = 0 if axis is None else signature.whole(axis) or 0
        if weight is None or index is None or along not in range(-len(weight.shape), len(weight.shape)):
            return None
        rows, cols = index.numel, weight.numel // max(weight.shape[along], 1)
        moved = (min(rows * cols, weight.numel) + rows * cols) * weight.item_bytes(item_bytes)
        return columns_of((rows, cols), flops=0, bytes_=moved + rows * index.item_bytes(INDEX_BYTES))

    return columns


def _bags(signature: Signature, item_bytes: int) -> Columns | None:
    """PyTorch's look-up in one table: a row per index, summed into one for each bag, where those begin coming third."""
    weight, index, offset = (signature.tensor(i) for i in range(3))
    if weight is None or index is None or offset is None:
        return None
    cols = math.prod(weight.shape[1:])
    drawn, bags = index.numel * cols, offset.numel - bool(signature.value(7))
    moved = (min(drawn, weight.numel) + bags * cols) * weight.item_bytes(item_bytes)
    listed = index.size_bytes(INDEX_BYTES) + offset.size_bytes(INDEX_BYTES)
    return columns_of((index.numel, cols), flops=drawn, bytes_=moved + listed)


def _lookup(*, weights: int, tables: int, width: int, indices: int, rows: int | None = None) -> Traffic:
    """FBGEMM's look-up in several tables: a row per index, summed into one for each sample and table.

    Tables that hold fewer rows than are drawn from them have to be read once only.

    Args:
        weights: Input with the elements of all tables.
        tables: Input with one entry per table.
        width: Input that is the width of all tables together; the values of inputs aren't always recorded.
        indices: Input with the indices; the next one has where each sample's begin, and where the last one's end.
        rows: Input with an entry per row of all tables, which tells the width in its stead.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        weight, table, index, offset = (signature.tensor(i) for i in (weights, tables, indices, indices + 1))
        if weight is None or table is None or index is None or offset is None or not table.numel:
            return None
        state = signature.tensor(rows) if rows is not None else None
        given = signature.value(width)
        if isinstance(given, int) and given:
            mean_width = given / table.numel
        elif state is not None and state.numel:
            mean_width = weight.numel / state.numel
        else:
            return None
        summed = (offset.numel - 1) * mean_width
        drawn = index.numel * mean_width
        listed = index.size_bytes(INDEX_BYTES) + offset.size_bytes(INDEX_BYTES)
        # Weights that lie elsewhere, or are cached, are an empty tensor here.
        read = min(drawn, weight.numel) if weight.numel else drawn
        bytes_ = round(read * weight.item_bytes(item_bytes) + summed * SUM_BYTES) + listed
        return columns_of((index.numel, round(mean_width)), flops=round(drawn), bytes_=bytes_)

    return columns


def _embedding_gradient(signature: Signature, item_bytes: int) -> Columns | None:
    """The gradient's rows read, and added to rows of the table's gradient."""
    gradient, indices = signature.tensor(0), signature.tensor(1)
    if gradient is None or indices is None:
        return None
    bytes_ = 2 * gradient.size_bytes(item_bytes) + indices.numel * INDEX_BYTES
    return columns_of(gradient.shape, flops=gradient.numel, bytes_=bytes_)


TRAFFIC: dict[str, Traffic] = {
    "aten::embedding": _rows(1),
    "aten::_embedding_bag": _bags,
    "aten::_embedding_bag_forward_only": _bags,
    "fbgemm::split_embedding_codegen_lookup_adagrad_function": _lookup(weights=1, tables=5, width=7, indices=11),
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function": _lookup(
        weights=1, tables=5, width=7, indices=11, rows=20
    ),
    **dict.fromkeys(
        (
            "fbgemm::split_embedding_codegen_forward_unweighted_cuda",
            "fbgemm::split_embedding_codegen_forward_weighted_cuda",
        ),
        _lookup(weights=0, tables=4, width=6, indices=8),
    ),
    "fbgemm::dense_embedding_codegen_forward_unweighted_cuda": _lookup(weights=0, tables=1, width=3, indices=5),
    "fbgemm::dense_embedding_codegen_lookup_function": _lookup(weights=0, tables=1, width=3, indices=7),
    "aten::embedding_dense_backward": _embedding_gradient,
    "aten::index_select": _rows(2, axis=1),
}
