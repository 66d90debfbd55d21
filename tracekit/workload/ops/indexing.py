"""Compute the traffic of copies, concatenations, gathers and caches: ops that move elements without computing."""

import math
from itertools import zip_longest

from tracekit.workload.ops.elementwise import broadcast_shapes
from tracekit.workload.ops.memory_traffic import (
    INDEX_BYTES,
    PICKED,
    Columns,
    TrafficFormula,
    build_traffic_columns,
    make_read_write,
    make_single_pass,
    sum_bytes,
)
from tracekit.workload.ops.registry import op, op_kernels, other_ops_of
from tracekit.workload.ops.sparse_features import build_warps
from tracekit.workload.signature import Signature, Tensor

MIN_PRODUCTS = 3
"""Results whose dot products a recommender takes, at least: the dense one and two tables'."""


@other_ops_of("copy")
def compute_traffic(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the traffic of a gather or concatenation: it writes what it reads."""
    tensors = signature.tensors
    numel = sum(tensor.numel for tensor in tensors)
    return build_traffic_columns((numel,), flops=0, bytes_=2 * sum_bytes(tensors, item_bytes))


_PAD_OPS = [f"aten::{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in (1, 2, 3)]


@op("aten::copy_", family="copy")
def _compute_copy(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a copy: the second input read, the first written."""
    tensors = signature.tensors[:2]
    return build_traffic_columns(tensors[0].shape, flops=0, bytes_=sum_bytes(tensors, item_bytes)) if tensors else None


@op("aten::cat", "aten::_cat", "aten::stack", family="copy")
def _compute_concatenation(signature: Signature, item_bytes: int) -> Columns | None:
    parts = (
        signature.get_tensors(0)
        if signature.dims and signature.dims[0] and isinstance(signature.dims[0][0], list)
        else []
    )
    if not parts and signature.output:
        return build_traffic_columns(signature.output, flops=0, bytes_=2 * math.prod(signature.output) * item_bytes)
    numel = sum(tensor.numel for tensor in parts)
    written = sum(tensor.numel * tensor.get_item_bytes(item_bytes) for tensor in parts)
    return build_traffic_columns((numel,), flops=0, bytes_=sum_bytes(parts, item_bytes) + written) if parts else None


@op("aten::gather", family="copy", unread=PICKED)
def _compute_gather(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a gather: one element read and written per index; a source of fewer elements is read once."""
    source, index = signature.get_tensor(0), signature.get_tensor(2)
    if source is None or index is None:
        return None
    moved = (min(index.numel, source.numel) + index.numel) * source.get_item_bytes(item_bytes)
    return build_traffic_columns(index.shape, flops=0, bytes_=moved + index.compute_bytes(INDEX_BYTES))


def _make_scatter(*, adds: bool = False, rows: bool = False) -> TrafficFormula:
    """Make the formula of a scatter with first input, axis, indices and source.

    Elements are written to the first input, each once if it has fewer elements than there are indices.

    Args:
        adds: Whether the old values are read too.
        rows: Whether each index is that of a whole row, not of an element; a source that isn't a number is read.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        target, index, source = (signature.get_tensor(place) for place in (0, 2, 3))
        if target is None or index is None or (rows and source is None):
            return None
        put = source if rows and source is not None else index
        changed = min(put.numel, target.numel) * (2 if adds else 1)
        elements = changed + (put.numel if source is not None else 0)
        bytes_ = elements * target.get_item_bytes(item_bytes) + index.compute_bytes(INDEX_BYTES)
        return build_traffic_columns(put.shape, flops=put.numel if adds else 0, bytes_=bytes_)

    return columns


@op("aten::index", family="copy", unread=PICKED)
def _compute_index(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute advanced indexing: the broadcast indices replace axes of the source; an axis without index stays."""
    source, indices = signature.get_tensor(0), signature.get_tensors(1)
    if source is not None and not indices:
        return _compute_triangle(source, item_bytes)
    masks = any(index.dtype in ("bool", "uint8") for index in indices)
    if source is None or not indices or masks or len(signature.dims[1]) > len(source.shape):
        return None
    picked = math.prod(broadcast_shapes(index.shape for index in indices))
    kept = math.prod(size for size, shape in zip_longest(source.shape, signature.dims[1]) if not shape)
    moved = (min(picked * kept, source.numel) + picked * kept) * source.get_item_bytes(item_bytes)
    return build_traffic_columns((picked, kept), flops=0, bytes_=moved + sum_bytes(indices, INDEX_BYTES))


def _compute_triangle(source: Tensor, item_bytes: int) -> Columns | None:
    """Compute what lies below the diagonal of each square: what a recommender takes of its dot products.

    No sizes are recorded of indices that leave out an axis. Nothing else takes elements of one square per sample.
    """
    if len(source.shape) != 3 or source.shape[1] != source.shape[2] or source.shape[1] < MIN_PRODUCTS:
        return None
    samples, results, _ = source.shape
    picked = results * (results - 1) // 2
    moved = 2 * samples * picked * source.get_item_bytes(item_bytes)
    columns = build_traffic_columns((samples, picked), flops=0, bytes_=round(moved) + 2 * picked * INDEX_BYTES)
    return columns | {"across": True}


@op("aten::index_put", "aten::index_put_", "aten::_index_put_impl_", family="copy", unread=PICKED)
def _compute_index_put(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute ``index_put``: values read and written; to accumulate, the target is read too.

    A single value is left out: the number of times that it is written isn't recorded.
    """
    values = signature.get_tensor(2)
    if values is None or values.numel == 1:
        return None
    size = values.numel * values.get_item_bytes(item_bytes)
    return build_traffic_columns(values.shape, flops=0, bytes_=(3 if signature.get_value(3) else 2) * size)


@op(*_PAD_OPS, family="copy")
def _compute_padding(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute padding: the input read, an output written that is wider on both ends of its last axes."""
    x, padding = signature.get_tensor(0), signature.get_integers(1)
    if x is None or padding is None or len(padding) > 2 * len(x.shape):
        return None
    shape = list(x.shape)
    for place, width in enumerate(padding):
        shape[-1 - place // 2] += width
    written = math.prod(shape) * x.get_item_bytes(item_bytes)
    return build_traffic_columns(shape, flops=0, bytes_=x.compute_bytes(item_bytes) + written)


@op("_C::rotary_embedding", "sgl_kernel::rotary_embedding", family="elementwise", unread=PICKED)
def _compute_rotary(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a rotation of query and key in place: positions, query, key, head width, table of sines and cosines."""
    positions, table = signature.get_tensor(0), signature.get_tensor(4)
    turned = [tensor for index in (1, 2) for tensor in signature.get_tensors(index)]
    if positions is None or table is None or not table.shape or not turned:
        return None
    looked_up = positions.numel * (table.shape[-1] * table.get_item_bytes(item_bytes) + INDEX_BYTES)
    numel = sum(tensor.numel for tensor in turned)
    return build_traffic_columns((numel,), flops=3 * numel, bytes_=2 * sum_bytes(turned, item_bytes) + looked_up)


def _make_cache_store(*, new: tuple[int, ...], cache: int, slots: int) -> TrafficFormula:
    """Make the formula of an op that reads rows of ``new`` and writes them to a cache, in the cache's type."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        rows, kept, slot = (
            [signature.get_tensor(i) for i in new],
            signature.get_tensor(cache),
            signature.get_tensor(slots),
        )
        known = [tensor for tensor in rows if tensor is not None]
        if kept is None or slot is None or len(known) != len(new):
            return None
        numel = sum(tensor.numel for tensor in known)
        bytes_ = (
            sum_bytes(known, item_bytes) + numel * kept.get_item_bytes(item_bytes) + slot.compute_bytes(INDEX_BYTES)
        )
        return build_traffic_columns((numel,), flops=0, bytes_=bytes_)

    return columns


op("aten::_chunk_cat", "aten::split_with_sizes_copy", *(f"{name}_backward" for name in _PAD_OPS), family="copy")(
    make_single_pass()
)
op("aten::_foreach_copy_", family="copy")(make_read_write(both=(), read=(1,), write=(0,)))
op("aten::scatter", "aten::scatter_", family="copy", unread=PICKED)(_make_scatter())
op(
    "aten::scatter_add", "aten::scatter_add_", "aten::scatter_reduce", "aten::scatter_reduce_", family="copy",
    unread=PICKED,
)(_make_scatter(adds=True))  # fmt: skip
op("aten::index_add", "aten::index_add_", family="copy", unread=PICKED)(_make_scatter(adds=True, rows=True))
op("aten::index_copy", "aten::index_copy_", family="copy", unread=PICKED)(_make_scatter(rows=True))
op(
    "_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", "sglang::store_cache",
    family="copy", unread=PICKED,
)(_make_cache_store(new=(0, 1), cache=2, slots=4))  # fmt: skip
op("_C_cache_ops::concat_and_cache_mla", family="copy", unread=PICKED)(_make_cache_store(new=(0, 1), cache=2, slots=3))


VALUES = 2
ADDING_ELEMENTS = 30
"""How many scattered elements take as long as a warp that adds one gradient: 51 clocks of an SM on H100 and H200."""
SORTED_BYTES, MAX_TILE_INDICES = 32, 2304
"""Bytes read and written of an index and its place; indices that one block sorts at most (CUB's policies)."""


def _add_gradients(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute the gradient of a recommender's dot products: each lies at a place of its sample's square.

    PyTorch sorts the places and adds up the gradients at each, a warp for each gradient, as a place may come several
    times.
    """
    values = signature.get_tensor(VALUES)
    if values is None:
        return None
    return build_warps(values.numel, values.numel, 3 * values.compute_bytes(item_bytes), ADDING_ELEMENTS)


def _sort_places(signature: Signature, item_bytes: int) -> Columns:
    del signature, item_bytes
    moved = MAX_TILE_INDICES * SORTED_BYTES
    return build_traffic_columns((MAX_TILE_INDICES,), flops=0, bytes_=moved) | {"family": "reduction"}


# The kernel of rows, in place of single elements, has the op's work.
op_kernels("aten::index_put", "aten::index_put_", "aten::_index_put_impl_")(
    (r"indexing_backward_kernel_stride_1", _add_gradients), (r"RadixSortSingleTile", _sort_places)
)
