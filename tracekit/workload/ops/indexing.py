"""Copies, joins, gathers and caches: what moves elements without computing."""

import math
from itertools import zip_longest

from tracekit.workload.ops.elementwise import broadcast
from tracekit.workload.ops.vector import (
    INDEX_BYTES,
    Columns,
    Traffic,
    columns_of,
    every_tensor_once,
    read_and_write,
    size_of,
)
from tracekit.workload.signature import Signature


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


def _gather(signature: Signature, item_bytes: int) -> Columns | None:
    """One element read and written per index; a source of fewer elements is read once."""
    source, index = signature.tensor(0), signature.tensor(2)
    if source is None or index is None:
        return None
    moved = (min(index.numel, source.numel) + index.numel) * source.item_bytes(item_bytes)
    return columns_of(index.shape, flops=0, bytes_=moved + index.size_bytes(INDEX_BYTES))


def _put(*, adds: bool = False, rows: bool = False) -> Traffic:
    """Of first input, axis, indices and source: what is written to the first input, once where that has fewer elements.

    Args:
        adds: What is there is read too.
        rows: Each index is that of a whole row, not of an element; a source that isn't a number is read.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        target, index, source = (signature.tensor(place) for place in (0, 2, 3))
        if target is None or index is None or (rows and source is None):
            return None
        put = source if rows and source is not None else index
        changed = min(put.numel, target.numel) * (2 if adds else 1)
        elements = changed + (put.numel if source is not None else 0)
        bytes_ = elements * target.item_bytes(item_bytes) + index.size_bytes(INDEX_BYTES)
        return columns_of(put.shape, flops=put.numel if adds else 0, bytes_=bytes_)

    return columns


def _index(signature: Signature, item_bytes: int) -> Columns | None:
    """Advanced indexing: the indices broadcast and take the place of axes of the source; no index keeps an axis."""
    source, indices = signature.tensor(0), signature.at(1)
    masks = any(index.dtype in ("bool", "uint8") for index in indices)
    if source is None or not indices or masks or len(signature.dims[1]) > len(source.shape):
        return None
    picked = math.prod(broadcast(index.shape for index in indices))
    kept = math.prod(size for size, shape in zip_longest(source.shape, signature.dims[1]) if not shape)
    moved = (min(picked * kept, source.numel) + picked * kept) * source.item_bytes(item_bytes)
    return columns_of((picked, kept), flops=0, bytes_=moved + size_of(indices, INDEX_BYTES))


def _index_put(signature: Signature, item_bytes: int) -> Columns | None:
    """The values read and written; added, the target is read too. How often a single one is written isn't recorded."""
    values = signature.tensor(2)
    if values is None or values.numel == 1:
        return None
    size = values.numel * values.item_bytes(item_bytes)
    return columns_of(values.shape, flops=0, bytes_=(3 if signature.value(3) else 2) * size)


def _padded(signature: Signature, item_bytes: int) -> Columns | None:
    """The input read, an output written that is wider on both ends of its last axes."""
    x, padding = signature.tensor(0), signature.numbers(1)
    if x is None or padding is None or len(padding) > 2 * len(x.shape):
        return None
    shape = list(x.shape)
    for place, width in enumerate(padding):
        shape[-1 - place // 2] += width
    written = math.prod(shape) * x.item_bytes(item_bytes)
    return columns_of(shape, flops=0, bytes_=x.size_bytes(item_bytes) + written)


def _rotary(signature: Signature, item_bytes: int) -> Columns | None:
    """Positions, query, key, width of a head, table of sines and cosines: rotates query and key in place."""
    positions, table = signature.tensor(0), signature.tensor(4)
    turned = [tensor for index in (1, 2) for tensor in signature.at(index)]
    if positions is None or table is None or not table.shape or not turned:
        return None
    looked_up = positions.numel * (table.shape[-1] * table.item_bytes(item_bytes) + INDEX_BYTES)
    numel = sum(tensor.numel for tensor in turned)
    return columns_of((numel,), flops=3 * numel, bytes_=2 * size_of(turned, item_bytes) + looked_up)


def _store(*, new: tuple[int, ...], cache: int, slots: int) -> Traffic:
    """Rows of ``new`` read and written to a cache, in its type."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        rows, kept, slot = [signature.tensor(i) for i in new], signature.tensor(cache), signature.tensor(slots)
        known = [tensor for tensor in rows if tensor is not None]
        if kept is None or slot is None or len(known) != len(new):
            return None
        numel = sum(tensor.numel for tensor in known)
        bytes_ = size_of(known, item_bytes) + numel * kept.item_bytes(item_bytes) + slot.size_bytes(INDEX_BYTES)
        return columns_of((numel,), flops=0, bytes_=bytes_)

    return columns


_PADS = [f"aten::{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in (1, 2, 3)]

TRAFFIC: dict[str, Traffic] = {
    "aten::copy_": _copy,
    "aten::cat": _join,
    "aten::_cat": _join,
    "aten::stack": _join,
    "aten::_chunk_cat": every_tensor_once(),
    "aten::split_with_sizes_copy": every_tensor_once(),
    "aten::_foreach_copy_": read_and_write(both=(), read=(1,), write=(0,)),
    "aten::gather": _gather,
    **dict.fromkeys(("aten::scatter", "aten::scatter_"), _put()),
    **dict.fromkeys(
        ("aten::scatter_add", "aten::scatter_add_", "aten::scatter_reduce", "aten::scatter_reduce_"), _put(adds=True)
    ),
    **dict.fromkeys(("aten::index_add", "aten::index_add_"), _put(adds=True, rows=True)),
    **dict.fromkeys(("aten::index_copy", "aten::index_copy_"), _put(rows=True)),
    "aten::index": _index,
    "aten::index_put_": _index_put,
    "aten::_index_put_impl_": _index_put,
    **dict.fromkeys(_PADS, _padded),
    **{f"{op}_backward": every_tensor_once() for op in _PADS},
    "_C::rotary_embedding": _rotary,
    "sgl_kernel::rotary_embedding": _rotary,
    "_C_cache_ops::reshape_and_cache_flash": _store(new=(0, 1), cache=2, slots=4),
    "_C_cache_ops::reshape_and_cache": _store(new=(0, 1), cache=2, slots=4),
    "_C_cache_ops::concat_and_cache_mla": _store(new=(0, 1), cache=2, slots=3),
    "sglang::store_cache": _store(new=(0, 1), cache=2, slots=4),
}
