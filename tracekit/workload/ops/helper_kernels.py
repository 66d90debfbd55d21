"""Compute the work of kernels that assist a GEMM or convolution: layout changes, casts, fills, split-K sums.

They move one of their op's tensors. The grid of tiled transposes identifies which one; for others their name does.
"""

import math
import re
from collections.abc import Iterator

from tracekit.workload.ops import conv
from tracekit.workload.ops.memory_traffic import Columns, build_traffic_columns
from tracekit.workload.ops.registry import OPS
from tracekit.workload.signature import ITEM_BYTES, Signature

Shape = tuple[int, ...]

CUDNN_TILE = (32, 32)
MIOPEN_TILE = re.compile(r"batched_transpose_([1-9]\d{0,3})x([1-9]\d{0,3})")
TRANSPOSE_KERNEL = re.compile(
    r"nchwToNhwc|nhwcToNchw|tensorTransform|batched_transpose|transpose_\w+2\w+", re.IGNORECASE
)
OUTPUT_TRANSPOSE_KERNEL = re.compile(r"nhwcToNchw|CNHW2NCHW|WithCast", re.IGNORECASE)
FILL_KERNEL = re.compile(r"SubTensorOpWithScalar|scalePackedTensor", re.IGNORECASE)
CAST_KERNEL = re.compile(r"SubTensorOpWithCast", re.IGNORECASE)
SPLIT_SUM_KERNEL = re.compile(r"split_?k_?reduce|reduce_?splitk|reduce_wgrad", re.IGNORECASE)
SORTING_KERNEL = re.compile(
    r"Device(?:RadixSort|MergeSort|Scan|Compact|UniqueByKey|Select)|krn_partial|compute_num_of_partial"
)
SORTING_OP = re.compile(
    r"sort|topk|unique|cum(?:sum|prod|max|min)|nonzero|mask|bincount|hist|median|kthvalue|multinomial|randperm"
)
"""Ops whose own work is to sort, scan or select."""

PARTIAL_BYTES = 4
"""Bytes of fp32: split-K GEMMs are summed in it, and MIOpen casts its results from a workspace in it."""
MIN_SPLITS = 2
"""Minimum number of splits; their actual number isn't recorded."""


def sorts_indices(op: str, kernel: str) -> bool:
    """Return whether a kernel brings the indices of an op in order, which are few beside the op's tensors.

    The gradients of look-ups and of indexing do so. How many passes it takes over how many bits isn't recorded.
    """
    return SORTING_KERNEL.search(kernel) is not None and SORTING_OP.search(op) is None


def compute_helper_work(signature: Signature, kernel: str, blocks: int | None) -> Columns | None:
    """Compute the traffic of a helper kernel; ``None`` if neither its grid nor its name identifies the tensor."""
    item_bytes = ITEM_BYTES[signature.dtype or "fp32"]
    registered = OPS.get(signature.op)
    if registered is not None and registered.family == "gemm":
        return _compute_gemm_helper(registered.compute(signature, item_bytes), signature, kernel, item_bytes)
    tensors = _list_convolution_tensors(signature)
    if tensors is None:
        return None
    *inputs, output = tensors
    if FILL_KERNEL.search(kernel):
        return build_traffic_columns(output, flops=0, bytes_=item_bytes * math.prod(output))
    gathered = _get_gradient_weight(signature) or output
    numel = math.prod(gathered)
    if CAST_KERNEL.search(kernel):
        return build_traffic_columns(gathered, flops=0, bytes_=(PARTIAL_BYTES + item_bytes) * numel)
    if SPLIT_SUM_KERNEL.search(kernel):
        return build_traffic_columns(gathered, flops=numel, bytes_=_compute_split_sum_bytes(numel, item_bytes))
    if not TRANSPOSE_KERNEL.search(kernel):
        return None
    likely = [output, *inputs] if OUTPUT_TRANSPOSE_KERNEL.search(kernel) else [*inputs, output]
    moved = _match_grid(likely, kernel, blocks)
    return build_traffic_columns(moved, flops=0, bytes_=2 * item_bytes * math.prod(moved))


def _compute_gemm_helper(product: Columns | None, signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    if product is None:
        return None
    rows, cols = int(product["batch"] or 1) * int(product["m"] or 1), int(product["n"] or 1)
    split = SPLIT_SUM_KERNEL.search(kernel)
    if not split and signature.op.isidentifier():
        return None
    bytes_ = _compute_split_sum_bytes(rows * cols, item_bytes) if split else 2 * item_bytes * rows * cols
    return build_traffic_columns((rows, cols), flops=rows * cols, bytes_=bytes_)


def _compute_split_sum_bytes(numel: int, item_bytes: int) -> int:
    return numel * (MIN_SPLITS * PARTIAL_BYTES + item_bytes)


def _list_convolution_tensors(signature: Signature) -> list[Shape] | None:
    """List two inputs, then the result, of a convolution or one of its gradients; of both at once three inputs."""
    first = [signature.get_shape(index) for index in range(3)]
    output = (
        conv.infer_output_shape(signature) if signature.op in conv.FORWARD_ARGUMENTS else signature.output or first[1]
    )
    tensors = [shape for shape in (*first, output) if shape is not None and len(shape) > 2]
    return tensors if output is not None and len(tensors) > 1 else None


def _get_gradient_weight(signature: Signature) -> Shape | None:
    """Return the weight of an op that computes both gradients: the weight's is the one that is summed up from parts."""
    return signature.get_shape(2) if signature.op.endswith("_backward") else None


def _match_grid(likely: list[Shape], kernel: str, blocks: int | None) -> Shape:
    """Choose the tensor whose number of tiles equals the blocks, or is nearest to them; the likelier one on a tie."""
    tile = MIOPEN_TILE.search(kernel)
    sides = (int(tile.group(1)), int(tile.group(2))) if tile else CUDNN_TILE
    if not blocks or not (tile or "Nhwc" in kernel or "nhwc" in kernel):
        return likely[0]
    return min(likely, key=lambda shape: min(_compute_distance(tiles, blocks) for tiles in _count_tiles(shape, sides)))


def _count_tiles(shape: Shape, sides: tuple[int, int]) -> Iterator[int]:
    """Yield the blocks of a transpose of [N, C, ...] in tiles, with either side along the channels."""
    pixels = math.prod(shape[2:])
    for along, across in (sides, sides[::-1]):
        yield shape[0] * math.ceil(pixels / along) * math.ceil(shape[1] / across)


def _compute_distance(tiles: int, blocks: int) -> float:
    return abs(math.log(max(tiles, 1) / max(blocks, 1)))
