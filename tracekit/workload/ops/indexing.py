"""Copies, joins, look-ups and their gradients: what moves elements without computing."""

import math

from tracekit.workload.ops.vector import (
    INDEX_BYTES,
    Columns,
    Traffic,
    columns_of,
    every_tensor_once,
    read_and_write,
    size_of,
)
from tracekit.workload.signature import Signature, Tensor

SUM_BYTES = 4
"""Of a look-up's result, fp32 whatever the tables are in."""


def traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """What gathers or joins writes what it reads."""
    tensors = signature.tensors
    numel = sum(tensor.numel for tensor in tensors)
    return columns_of((numel,), flops=0, bytes_=2 * size_of(tensors, item_bytes))


def _copy(signature: Signature, item_bytes: int) -> Columns | None:
    """The second input read, the first written."""
    tensors = signature.tensors[:2]
    return columns_of(tensors[0].shape, flops=0, bytes_=size_of(tensors, item_bytes)) if tensors else None


def _join(signature: Signature, item_bytes: int) -> Columns | None:
    parts = signature.at(0) if signature.dims and signature.dims[0] and isinstance(signature.dims[0][0], list) else []
    numel = sum(tensor.numel for tensor in parts)
    written = sum(tensor.numel * tensor.item_bytes(item_bytes) for tensor in parts)
    return columns_of((numel,), flops=0, bytes_=size_of(parts, item_bytes) + written) if parts else None


def _rows(table: int, indices: int) -> Traffic:
    """A row of the input ``table`` read and written for each of ``indices``; a table of fewer rows is read once."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        weight, index = _first(signature, table), _first(signature, indices)
        if weight is None or index is None:
            return None
        rows, cols = index.numel, math.prod(weight.shape[1:])
        moved = (min(rows * cols, weight.numel) + rows * cols) * weight.item_bytes(item_bytes)
        return columns_of((rows, cols), flops=0, bytes_=moved + rows * index.item_bytes(INDEX_BYTES))

    return columns


def _bags(signature: Signature, item_bytes: int) -> Columns | None:
    """PyTorch's look-up in one table: a row per index, summed into one for each bag, where those begin coming third."""
    weight, index, offset = (_first(signature, i) for i in range(3))
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
        weight, table, index, offset = (_first(signature, i) for i in (weights, tables, indices, indices + 1))
        if weight is None or table is None or index is None or offset is None or not table.numel:
            return None
        state = _first(signature, rows) if rows is not None else None
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


def _gather(signature: Signature, item_bytes: int) -> Columns | None:
    """One element read and written per index."""
    source, index = _first(signature, 0), _first(signature, 2)
    if source is None or index is None:
        return None
    bytes_ = 2 * index.numel * source.item_bytes(item_bytes) + index.size_bytes(INDEX_BYTES)
    return columns_of(index.shape, flops=0, bytes_=bytes_)


def _scatter(signature: Signature, item_bytes: int) -> Columns | None:
    """One element of the first input changed per index."""
    target, index = _first(signature, 0), _first(signature, 2)
    if target is None or index is None:
        return None
    bytes_ = 3 * index.numel * target.item_bytes(item_bytes) + index.size_bytes(INDEX_BYTES)
    return columns_of(index.shape, flops=index.numel, bytes_=bytes_)


def _index(signature: Signature, item_bytes: int) -> Columns | None:
    """Advanced indexing: the indices broadcast and take the place of the first axes of the source."""
    source, indices = _first(signature, 0), signature.at(1)
    masks = any(index.dtype in ("bool", "uint8") for index in indices)
    if source is None or not indices or masks or len(indices) > len(source.shape):
        return None
    picked = max(index.numel for index in indices)
    numel = picked * math.prod(source.shape[len(indices) :])
    bytes_ = 2 * numel * source.item_bytes(item_bytes) + len(indices) * picked * INDEX_BYTES
    return columns_of((picked, numel // max(picked, 1)), flops=0, bytes_=bytes_)


def _index_put(signature: Signature, item_bytes: int) -> Columns | None:
    """The values read and written; added, the target is read too."""
    values = _first(signature, 2)
    if values is None:
        return None
    size = values.numel * values.item_bytes(item_bytes)
    return columns_of(values.shape, flops=0, bytes_=(3 if signature.value(3) else 2) * size)


def _embedding_gradient(signature: Signature, item_bytes: int) -> Columns | None:
    """The gradient's rows read, and added to rows of the table's gradient."""
    gradient, indices = _first(signature, 0), _first(signature, 1)
    if gradient is None or indices is None:
        return None
    bytes_ = 2 * gradient.size_bytes(item_bytes) + indices.numel * INDEX_BYTES
    return columns_of(gradient.shape, flops=gradient.numel, bytes_=bytes_)


def _rotary(signature: Signature, item_bytes: int) -> Columns | None:
    """Positions, query, key, width of a head, table of sines and cosines: rotates query and key in place."""
    positions, table = _first(signature, 0), _first(signature, 4)
    turned = [tensor for index in (1, 2) for tensor in signature.at(index)]
    if positions is None or table is None or not turned:
        return None
    looked_up = positions.numel * (table.shape[-1] * table.item_bytes(item_bytes) + INDEX_BYTES)
    numel = sum(tensor.numel for tensor in turned)
    return columns_of((numel,), flops=3 * numel, bytes_=2 * size_of(turned, item_bytes) + looked_up)


def _store(*, new: tuple[int, ...], cache: int, slots: int) -> Traffic:
    """Rows of ``new`` read and written to a cache, in its type."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        rows, kept, slot = [_first(signature, i) for i in new], _first(signature, cache), _first(signature, slots)
        known = [tensor for tensor in rows if tensor is not None]
        if kept is None or slot is None or len(known) != len(new):
            return None
        numel = sum(tensor.numel for tensor in known)
        bytes_ = size_of(known, item_bytes) + numel * kept.item_bytes(item_bytes) + slot.size_bytes(INDEX_BYTES)
        return columns_of((numel,), flops=0, bytes_=bytes_)

    return columns


def _first(signature: Signature, index: int) -> Tensor | None:
    return next(iter(signature.at(index)), None)


TRAFFIC: dict[str, Traffic] = {
    "aten::copy_": _copy,
    "aten::cat": _join,
    "aten::_cat": _join,
    "aten::stack": _join,
    "aten::_chunk_cat": every_tensor_once(),
    "aten::split_with_sizes_copy": every_tensor_once(),
    "aten::_foreach_copy_": read_and_write(both=(), read=(1,), write=(0,)),
    "aten::embedding": _rows(0, 1),
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
    "aten::index_select": _rows(0, 2),
    "aten::gather": _gather,
    "aten::scatter": _scatter,
    "aten::scatter_": _scatter,
    "aten::scatter_add": _scatter,
    "aten::scatter_add_": _scatter,
    "aten::index": _index,
    "aten::index_put_": _index_put,
    "aten::_index_put_impl_": _index_put,
    "_C::rotary_embedding": _rotary,
    "sgl_kernel::rotary_embedding": _rotary,
    "_C_cache_ops::reshape_and_cache_flash": _store(new=(0, 1), cache=2, slots=4),
    "_C_cache_ops::reshape_and_cache": _store(new=(0, 1), cache=2, slots=4),
    "_C_cache_ops::concat_and_cache_mla": _store(new=(0, 1), cache=2, slots=3),
    "sglang::store_cache": _store(new=(0, 1), cache=2, slots=4),
}
