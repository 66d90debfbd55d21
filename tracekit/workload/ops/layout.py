"""Kernels that only assist a GEMM or convolution: layout changes, casts, fills, split-K sums.

What they move is one of their op's tensors. Tiled transposes tell by their grid which one; others by their name.
"""

import math
import re
from collections.abc import Iterator

from tracekit.workload.ops import conv, gemm, quantised
from tracekit.workload.ops.vector import Columns, columns_of
from tracekit.workload.signature import ITEM_BYTES, Signature

Shape = tuple[int, ...]

PRODUCTS = gemm.FORMULAS | quantised.FORMULAS

CUDNN_TILE = (32, 32)
MIOPEN_TILE = re.compile(r"batched_transpose_([1-9]\d{0,3})x([1-9]\d{0,3})")
TRANSPOSE = re.compile(r"nchwToNhwc|nhwcToNchw|tensorTransform|batched_transpose|transpose_\w+2\w+", re.IGNORECASE)
FROM_OUTPUT = re.compile(r"nhwcToNchw|CNHW2NCHW|WithCast", re.IGNORECASE)
FILL = re.compile(r"SubTensorOpWithScalar|scalePackedTensor", re.IGNORECASE)
CAST = re.compile(r"SubTensorOpWithCast", re.IGNORECASE)
SPLIT_SUM = re.compile(r"split_?k_?reduce|reduce_?splitk|reduce_wgrad", re.IGNORECASE)

PARTIAL_BYTES = 4
"""Split-K GEMMs are summed in fp32, and so is the workspace that MIOpen casts its results from."""
SPLITS = 2
"""At least; the number of splits isn't recorded."""


def assistance(signature: Signature, kernel: str, blocks: int | None) -> Columns | None:
    """What a helper kernel moves; ``None`` where neither its grid nor its name tells.

    Args:
        signature: The inputs of the op that launched it.
        kernel: Its name.
        blocks: Thread blocks launched.
    """
    item_bytes = ITEM_BYTES[signature.dtype or "fp32"]
    if signature.op in PRODUCTS:
        return _beside_product(signature, kernel, item_bytes)
    tensors = _convolution_tensors(signature)
    if tensors is None:
        return None
    *inputs, output = tensors
    if FILL.search(kernel):
        return columns_of(output, flops=0, bytes_=item_bytes * math.prod(output))
    gathered = _weight_of_gradients(signature) or output
    numel = math.prod(gathered)
    if CAST.search(kernel):
        return columns_of(gathered, flops=0, bytes_=(PARTIAL_BYTES + item_bytes) * numel)
    if SPLIT_SUM.search(kernel):
        return columns_of(gathered, flops=numel, bytes_=_split_sum_bytes(numel, item_bytes))
    if not TRANSPOSE.search(kernel):
        return None
    likely = [output, *inputs] if FROM_OUTPUT.search(kernel) else [*inputs, output]
    moved = _of_grid(likely, kernel, blocks)
    return columns_of(moved, flops=0, bytes_=2 * item_bytes * math.prod(moved))


def _beside_product(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    product = PRODUCTS[signature.op](signature)
    if product is None:
        return None
    rows, cols = int(product["batch"] or 1) * int(product["m"] or 1), int(product["n"] or 1)
    split = SPLIT_SUM.search(kernel)
    if not split and signature.op.isidentifier():
        return None
    bytes_ = _split_sum_bytes(rows * cols, item_bytes) if split else 2 * item_bytes * rows * cols
    return columns_of((rows, cols), flops=rows * cols, bytes_=bytes_)


def _split_sum_bytes(numel: int, item_bytes: int) -> int:
    return numel * (SPLITS * PARTIAL_BYTES + item_bytes)


def _convolution_tensors(signature: Signature) -> list[Shape] | None:
    """Two inputs, then the result, of a convolution or of one of its gradients; of both at once three inputs."""
    first = [signature.shape(index) for index in range(3)]
    output = conv.output_of(signature) if signature.op in conv.FORWARD else signature.output or first[1]
    tensors = [shape for shape in (*first, output) if shape is not None and len(shape) > 2]
    return tensors if output is not None and len(tensors) > 1 else None


def _weight_of_gradients(signature: Signature) -> Shape | None:
    """The weight of an op that computes both gradients: of these it is the weight's that is summed up in parts."""
    return signature.shape(2) if signature.op.endswith("_backward") else None


def _of_grid(likely: list[Shape], kernel: str, blocks: int | None) -> Shape:
    """The tensor whose tiles are as many as the blocks, else the one that comes nearest; the likelier on a draw."""
    tile = MIOPEN_TILE.search(kernel)
    sides = (int(tile.group(1)), int(tile.group(2))) if tile else CUDNN_TILE
    if not blocks or not (tile or "Nhwc" in kernel or "nhwc" in kernel):
        return likely[0]
    return min(likely, key=lambda shape: min(_distance(tiles, blocks) for tiles in _tiles(shape, sides)))


def _tiles(shape: Shape, sides: tuple[int, int]) -> Iterator[int]:
    """Blocks of a transpose of [N, C, ...] in tiles, either side along the channels."""
    pixels = math.prod(shape[2:])
    for along, across in (sides, sides[::-1]):
        yield shape[0] * math.ceil(pixels / along) * math.ceil(shape[1] / across)


def _distance(tiles: int, blocks: int) -> float:
    return abs(math.log(max(tiles, 1) / max(blocks, 1)))
