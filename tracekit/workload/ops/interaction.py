"""Compute the gradient of a recommender's dot products: each lies at a place of its sample's square.

PyTorch sorts the places and adds up the gradients at each, a warp for each gradient, as a place may come several times.
"""

from tracekit.workload.ops.memory_traffic import Columns, build_traffic_columns
from tracekit.workload.ops.sparse_features import KernelFormulas, build_warps
from tracekit.workload.signature import Signature

VALUES = 2
ADDING_ELEMENTS = 30
"""How many scattered elements take as long as a warp that adds one gradient: 51 clocks of an SM on H100 and H200."""
SORTED_BYTES, MAX_TILE_INDICES = 32, 2304
"""Bytes read and written of an index and its place; indices that one block sorts at most (CUB's policies)."""


def _add_gradients(signature: Signature, item_bytes: int) -> Columns | None:
    values = signature.get_tensor(VALUES)
    if values is None:
        return None
    return build_warps(values.numel, values.numel, 3 * values.compute_bytes(item_bytes), ADDING_ELEMENTS)


def _sort_places(signature: Signature, item_bytes: int) -> Columns:
    del signature, item_bytes
    moved = MAX_TILE_INDICES * SORTED_BYTES
    return build_traffic_columns((MAX_TILE_INDICES,), flops=0, bytes_=moved) | {"family": "reduction"}


KERNELS: dict[str, KernelFormulas] = dict.fromkeys(
    ("aten::index_put", "aten::index_put_", "aten::_index_put_impl_"),
    ((r"indexing_backward_kernel_stride_1", _add_gradients), (r"RadixSortSingleTile", _sort_places)),
)
"""Ops and their kernels; that of rows, in place of single elements, has the op's work."""
