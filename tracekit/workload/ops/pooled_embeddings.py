"""Compute the work of FBGEMM's ops on the sums of look-ups: they bring them into another order, or choose rows."""

import math

from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, build_traffic_columns, sum_bytes
from tracekit.workload.ops.sparse_features import KernelFormulas
from tracekit.workload.signature import Signature


def _move(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a move of all that the first input holds."""
    moved = signature.get_tensors(0)
    return _build(moved[0].shape, 2 * sum_bytes(moved, item_bytes)) if moved else None


def _build(shape: tuple[int, ...], bytes_: float) -> Columns:
    return build_traffic_columns(shape, flops=0, bytes_=round(bytes_)) | {"family": "copy", "indexed": False}


def _regroup(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute columns of several inputs in other groups: as many are read as written, and some may be left out."""
    inputs, widths = signature.get_tensors(0), signature.get_integers(4)
    if not inputs or not inputs[0].shape:
        return None
    width = sum(widths) if widths else sum(tensor.shape[-1] for tensor in inputs)
    samples = inputs[0].numel // max(inputs[0].shape[-1], 1)
    return _build((samples, width), 2 * samples * width * inputs[0].get_item_bytes(item_bytes))


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
    return _build((rows, elements // max(rows, 1)), bytes_ + rows * INDEX_BYTES) | {
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
    return _build((rows, elements // max(rows, 1)), bytes_) | {"family": "embedding", "indexed": True}


KERNELS: dict[str, KernelFormulas] = {
    **dict.fromkeys(
        (
            "recat_embedding_grad_output",
            "recat_embedding_grad_output_mixed_D",
            "recat_embedding_grad_output_mixed_D_batch",
        ),
        ((r"recat_copy", _move),),
    ),
    **dict.fromkeys(
        [f"permute_{kind}pooled_embs{how}" for kind in ("", "duplicate_") for how in ("", "_auto_grad")],
        ((r"permute_pooled_embs", _move),),
    ),
    **dict.fromkeys(
        ("permute_multi_embedding", "permute_multi_embedding_function", "regroup_keyed_tensor"),
        ((r"permute_multi_embs", _regroup),),
    ),
    **dict.fromkeys(
        ("group_index_select_dim0", "group_index_select_dim0_gpu_impl"),
        ((r"group_index_select_or_add", _select_group),),
    ),
    "batch_index_select_dim0": ((r"batch_index_select_dim0", _select_batch),),
}
"""Ops without their library's name, and their kernels."""
