"""Matrix products, and the grouped products of a mixture of experts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from predictors.arrays import Floats
from predictors.machine import Machine
from predictors.terms import (
    Columns,
    Constants,
    Terms,
    cyclic_us,
    memory_us,
    of_rows,
    overlap,
    overlap_power,
    rounds,
    sustained,
)

TILES = ((16, 64), (32, 64), (64, 32), (64, 64), (128, 64), (64, 128), (128, 128), (64, 256), (128, 256), (256, 128))
SPLITS = (1, 2, 4, 8, 16)
DEEP_SPLITS = (*SPLITS, 64)
"""Of products on the vector units, and of convolutions, whose weights' gradients are deep and small."""
LEAST_SPLIT_K = 128
ROWS_AT_ONCE = 1024
"""Of so many rows all tiles and splits together fit a CPU's second cache."""
POWER_LIMITED = "mma"
"""The class of matrix units whose clock follows from the board's power."""
SHARED_LANES = ("8.6", "8.9", "12.0", "12.1")
"""Architectures of which half of the fp32 lanes do integers too (GA102 whitepaper)."""
OTHER_VENDOR = "mfma"
"""AMD's matrix units: what is known of unaligned rows and cold operands is of NVIDIA's GPUs."""


def knows_power(constants: Collection[str], gpu: Machine) -> bool:
    """Whether a law with these constants itself tells what a GPU's power budget does to its clock."""
    return "power" in constants or ("matrix_power" in constants and gpu.tensor_class == POWER_LIMITED)


def product_cycles(
    tile_m: Floats | float, tile_n: Floats | float, flops_per_cycle: Floats, size: Floats, c: Constants
) -> Floats:
    """Clocks one SM takes for one step along k of a tile: arithmetic, operands from L2, or plain latency."""
    compute = 2.0 * tile_m * tile_n / (flops_per_cycle * c["compute"])
    feed = (tile_m + tile_n) * size / (64.0 * np.asarray(c["feed"]))
    return overlap(compute, feed, np.asarray(c["latency"]))


def of_slower_units(c: Constants, gpu: Machine) -> Constants:
    """The constants on a GPU whose units accumulate at half their rate.

    What else a product's loop does takes as long as where they don't: a step of one part of arithmetic and so much of
    the rest that `compute` is left becomes one of two parts and as much of the rest.
    """
    if not gpu.gpu.half_rate_accumulate:
        return c
    return {**c, "compute": 2 * np.asarray(c["compute"]) / (1 + np.asarray(c["compute"]))}


def gemm_terms(x: Columns, gpu: Machine, c: Constants, splits: Sequence[int] = SPLITS) -> Terms:
    """A matrix product on the matrix units; before wgmma they outrun the power of boards like the T4."""
    c = of_slower_units(c, gpu)
    if gpu.tensor_class == POWER_LIMITED:
        watts_per_tflops = gpu.watts_per_tflops * gpu.vector_tflops / (x["tflops"] * x["size"] / 2)
        x = {**x, "tflops": x["tflops"] * sustained(watts_per_tflops, c["matrix_power"])}
    return product_terms(x, gpu, c, splits)


def product_terms(x: Columns, gpu: Machine, c: Constants, splits: Sequence[int] = SPLITS) -> Terms:
    """A (batched) matrix product: best tile and split along k.

    On NVIDIA's GPUs the operands of a job's products come from memory at first, which takes longer to answer than the
    cache, and rows that don't start at multiples of 16 bytes are loaded and stored piece by piece.
    """
    m, n, k, batch, size = x["m"], x["n"], x["k"], x["batch"], x["size"]
    unaligned = np.asarray(c["unaligned"]) * (gpu.tensor_class != OTHER_VENDOR)
    any_tile = {
        **{name: x[name] for name in ("m", "n", "k", "batch", "size")},
        "flops_per_cycle": x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz,
        "unaligned": unaligned * x["unaligned_loads"],
        "stores": unaligned * x["unaligned_stores"] * batch * m * n / gpu.sms / gpu.clock_mhz,
        "stream": memory_us(x["work_bytes"], gpu, c),
        # One block alone streams its operands at no more than some SMs' share of the memory.
        "alone": c["fill"] * size * (gpu.sms / gpu.bandwidth_gbps / 1e3),
        "partial": 8.0 * batch * m * n / (gpu.bandwidth_gbps * c["reduce"]) / 1e3,
    }
    best = np.empty((2, m.size))
    for first in range(0, m.size, ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        some = {name: column[rows] for name, column in any_tile.items()}
        best[:, rows] = _best_tile(some, gpu, of_rows(c, rows), splits)
    quantise = x["quantised_input"] * (c["quantise"] * 3 * m * k / gpu.bandwidth_gbps / 1e3)
    cold = (x["cold"] > 0) & (gpu.tensor_class != OTHER_VENDOR)
    return Terms(c["floor"] / gpu.clock_mhz * np.where(cold, c["cold"], 1.0) + quantise, *best)


def _best_tile(x: Columns, gpu: Machine, c: Constants, splits: Sequence[int]) -> Floats:
    """Compute and memory time, (2, rows), with the tile and split for which the product takes least.

    All of them are tried at once, in arrays of (tiles, splits, rows).
    """
    (tile_m, tile_n), split = np.array(TILES, dtype=np.float64).T[..., None, None], np.array(splits)[:, None]
    cycles = product_cycles(tile_m, tile_n, x["flops_per_cycle"], x["size"], c) + x["unaligned"] * (tile_m + tile_n)
    depth = np.maximum(x["k"] / split, LEAST_SPLIT_K * (split > 1))
    tiles = x["batch"] * np.ceil(x["m"] / tile_m) * np.ceil(x["n"] / tile_n) / gpu.sms
    compute = rounds(tiles * split, c)
    compute *= depth + c["prologue"]
    compute *= cycles / gpu.clock_mhz
    compute += x["stores"]
    memory = (tile_m + tile_n) * (depth * x["alone"])
    memory += x["stream"] + x["partial"] * (split * (split > 1))
    tried = [terms.reshape(-1, terms.shape[-1]) for terms in (compute, memory)]
    time = overlap_power(*tried)
    best = (time == time.min(axis=0)).argmax(axis=0)
    return np.stack([terms[best, np.arange(best.size)] for terms in tried])


def sustained_tflops(x: Columns, gpu: Machine, c: Constants) -> Floats:
    """Rate of the vector units that the board's power allows and integers leave."""
    tflops = x["tflops"] * sustained(gpu.watts_per_tflops, c["power"])
    return tflops * c["shared_lanes"] if gpu.architecture in SHARED_LANES else tflops


def on_vector_units(x: Columns, gpu: Machine, c: Constants) -> Columns:
    """The columns of products there, whose clock the board's power limits and which load element by element."""
    aligned = np.zeros_like(x["k"])
    return {**x, "tflops": sustained_tflops(x, gpu, c), "unaligned_loads": aligned, "unaligned_stores": aligned}


def gemm_fp32_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A matrix product on the vector units; kernels of their own multiply by a vector, once through the matrix."""
    x = on_vector_units(x, gpu, c)
    product, vector = product_terms(x, gpu, c, DEEP_SPLITS), np.minimum(x["m"], x["n"]) == 1
    arithmetic = x["work_flops"] / (x["tflops"] * 1e6)
    stream = memory_us(x["work_bytes"], gpu, {**c, "memory": c["vector"]})
    return replace(
        product,
        compute_us=np.where(vector, np.minimum(product.compute_us, arithmetic), product.compute_us),
        memory_us=np.where(vector, stream, product.memory_us),
    )


def moe_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """Two grouped products of a gated expert layer: best tile over rows, every active expert's weights streamed.

    A benchmark's loop finds the weights in the cache as far as they fit; a job's other layers have had it since.
    """
    hidden, inter = x["hidden"], x["inter"] / x["tp"]
    local = np.maximum(x["experts"] / x["ep"], 1.0)
    rows = np.maximum(x["tokens"] * x["topk"] / x["ep"] ** c["ep_power"], 1.0)
    evenness = np.where(x["skewed"] > 0, c["evenness"], 1.0)
    active = np.maximum(local * -np.expm1(-evenness * x["tokens"] * x["topk"] / x["experts"]), 1.0)
    per_expert = rows / active
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    weights = active * 3 * hidden * inter * x["size"]
    passes = rows * (hidden * c["permute"] * 4 + inter * 6.0)
    from_memory = weights / gpu.bandwidth_gbps / 1e3 / c["memory"]
    streamed = np.where(x["cold"] > 0, from_memory, cyclic_us(weights, gpu, c))
    memory = streamed + passes / gpu.bandwidth_gbps / 1e3 / c["memory"]
    best_compute = np.full_like(rows, np.inf)
    for tile in (16, 32, 64, 128):
        cycles = product_cycles(tile, 128, flops_per_cycle, x["size"], c)
        row_tiles = active * (per_expert / tile + np.where(per_expert > tile, 0.5, 1.0) ** c["ragged"])
        time: Floats = np.zeros_like(rows)
        for wide, deep in ((2 * inter, hidden), (hidden, inter)):
            blocks = row_tiles * np.ceil(wide / 128)
            time = time + rounds(blocks / gpu.sms, c) * (deep + c["prologue"]) * cycles / gpu.clock_mhz
        best_compute = np.minimum(best_compute, time)
    return Terms(c["floor"] / gpu.clock_mhz + 0 * rows, best_compute, memory)
