"""Matrix products and attention: kernels that use the tensor cores."""

import math
from typing import NamedTuple

from sample_traces.synthetic.cpp import instance
from sample_traces.synthetic.gpu import SMS, Kernel
from sample_traces.synthetic.ops import Op

FLASH = "pytorch_flash::"


class Tile(NamedTuple):
    """A variant of the GEMM kernel."""

    rows: int
    columns: int
    depth: int
    stages: int
    threads: int
    registers: int


TILES = (
    Tile(128, 256, 64, 3, 256, 238),
    Tile(128, 128, 32, 5, 128, 230),
    Tile(128, 64, 64, 3, 128, 166),
    Tile(64, 64, 64, 5, 128, 96),
)


def addmm(op: Op) -> list[Kernel]:
    """Multiply matrices and adds a bias in the epilogue."""
    return _gemm(op, 1)


def mm(op: Op) -> list[Kernel]:
    """Multiply matrices."""
    return _gemm(op, 0)


def flash_forward(op: Op) -> list[Kernel]:
    """Compute causal attention over [batch, tokens, heads, width]."""
    grid, tensor_bytes, product_flops = _flash_sizes(op, 0)
    even = str(op.dims(0)[1] % 128 == 0).lower()
    name = (
        f"void {FLASH}flash_fwd_kernel<{_flash_traits('fwd', '4', 'false, false')}, "
        f"false, true, false, false, {even}, true, false>({FLASH}Flash_fwd_params)"
    )
    return [Kernel(name, grid, (128, 1, 1), 255, 49152, 2 * product_flops, 4 * tensor_bytes)]


def flash_backward(op: Op) -> list[Kernel]:
    """Compute the gradients of causal attention; dQ is summed in fp32, which the first kernel clears."""
    grid, tensor_bytes, product_flops = _flash_sizes(op, 1)
    traits = _flash_traits("bwd", "8", "4, 4, 4, false, false")
    params = f"{FLASH}Flash_bwd_params"
    dot = instance(f"{FLASH}flash_bwd_dot_do_o_kernel", "true", traits)
    flags = "false, true, false, false, true, true"
    main = f"{FLASH}flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{traits}, {flags}>"
    convert = instance(f"{FLASH}flash_bwd_convert_dq_kernel", traits)
    block = (256, 1, 1)
    return [
        Kernel(f"void {dot}({params})", grid, block, 46, 0, 0, 4 * tensor_bytes),
        Kernel(f"void {main}({params})", grid, block, 255, 147456, 5 * product_flops, 8 * tensor_bytes),
        Kernel(f"void {convert}({params}, int)", grid, block, 50, 16384, 0, 3 * tensor_bytes),
    ]


def _gemm(op: Op, first: int) -> list[Kernel]:
    """Take the largest tile that gives every SM a block, else the smallest."""
    (rows, depth), (_, columns) = op.dims(first), op.dims(first + 1)
    grids = {tile: (math.ceil(columns / tile.rows), math.ceil(rows / tile.columns), 1) for tile in TILES}
    tile = next((tile for tile in TILES if math.prod(grids[tile]) >= SMS), TILES[-1])
    # cuBLAS is column-major: it computes the transposed product, so the operands swap.
    layout = "".join("n" if op.strides(index)[-1] == 1 else "t" for index in (first + 1, first))
    name = f"ampere_bf16_s16816gemm_bf16_{tile.rows}x{tile.columns}_ldg8_f2f_stages_{tile.depth}x{tile.stages}_{layout}"
    shared_bytes = 2 * tile.stages * tile.depth * (tile.rows + tile.columns)
    moved_bytes = 2 * (rows * depth + depth * columns + rows * columns)
    flops = 2 * rows * depth * columns
    block = (tile.threads, 1, 1)
    return [Kernel(name, grids[tile], block, tile.registers, shared_bytes, flops, moved_bytes)]


def _flash_traits(direction: str, warps: str, options: str) -> str:
    item, tile = "cutlass::bfloat16_t", f"64, 128, 128, {warps}"
    base = instance(f"{FLASH}Flash_kernel_traits", tile, item)
    return instance(f"{FLASH}Flash_{direction}_kernel_traits", tile, options, item, base)


def _flash_sizes(op: Op, query: int) -> tuple[tuple[int, int, int], int, int]:
    """Return the grid, the bytes of one tensor and the FLOPs of one product, half of it masked."""
    batch, tokens, heads, width = op.dims(query)
    grid = (math.ceil(tokens / 128), batch, heads)
    return grid, 2 * math.prod(op.dims(query)), batch * heads * tokens * tokens * width
