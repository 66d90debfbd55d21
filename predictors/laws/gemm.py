"""Compute the terms of GEMMs, of the grouped GEMMs of experts, and of convolutions: as GEMMs, or by Winograd."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from predictors.arrays import Bools, Columns, Floats, Ints
from predictors.hardware import L2_BYTES_PER_SM_CLOCK, Hardware
from predictors.laws.terms import (
    Constants,
    LatencyTerms,
    Tiles,
    combine_overlapped_us,
    compute_cyclic_us,
    compute_memory_us,
    compute_overlap_power,
    compute_sustained_clock,
    count_waves,
    select_rows,
)

GEMM_TILES = (
    (16, 64),
    (32, 64),
    (64, 32),
    (64, 64),
    (128, 64),
    (64, 128),
    (128, 128),
    (64, 256),
    (128, 256),
    (256, 128),
)
K_SPLITS = (1, 2, 4, 8, 16)
DEEP_K_SPLITS = (*K_SPLITS, 64)
"""Of products on the vector units, and of convolutions, whose weights' gradients are deep and small."""
MIN_SPLIT_K = 128
EXPERT_ROW_TILES, EXPERT_TILE_N = (16, 32, 64, 128), 128
"""Tiles of grouped products: rows of one expert, and columns."""
CHUNK_ROWS = 1024
"""Of so many rows all tiles and splits together fit a CPU's second cache."""
POWER_LIMITED_CLASS = "mma"
"""The class of matrix units whose clock follows from the board's power."""
SHARED_LANE_ARCHITECTURES = ("8.6", "8.9", "12.0", "12.1")
"""Architectures of which half of the fp32 lanes do integers too (GA102 whitepaper)."""
AMD_CLASS = "mfma"
"""AMD's matrix units: what is known of unaligned rows and cold operands is of NVIDIA's GPUs."""
SCALED_BLOCK_DEPTH = 128.0
"""Products along k that share a scale in fp8 with blocks. On AMD GPUs the vector units multiply each sum of so many by
its scale and add it up, while the next matrix instruction waits: 0.89 of the rate is left on gfx942, 0.80 on gfx950,
whose matrix units are twice as fast. With 0.5 and 0.73, the rates of AITER's best over those in fp8 with a scale for
each row, an MI300X left out is 67 % too slow, an MI355X 36 % too fast."""


def models_power(constants: Collection[str], gpu: Hardware) -> bool:
    """Whether a law with these constants itself tells what a GPU's power budget does to its clock."""
    return "power" in constants or ("matrix_power" in constants and gpu.tensor_class == POWER_LIMITED_CLASS)


def compute_tile_step_cycles(
    tile_m: Floats | float, tile_n: Floats | float, flops_per_cycle: Floats, size: Floats, c: Constants
) -> Floats:
    """Return the SM clocks per step along k of a tile: the overlap of arithmetic, operands from L2 and latency."""
    compute = 2.0 * tile_m * tile_n / (flops_per_cycle * c["compute"])
    feed = (tile_m + tile_n) * size / (64.0 * np.asarray(c["feed"]))
    return combine_overlapped_us(compute, feed, np.asarray(c["latency"]))


def adjust_for_half_rate(c: Constants, gpu: Hardware) -> Constants:
    """The constants on a GPU whose units accumulate at half their rate.

    The rest of a GEMM's loop takes as long as on other GPUs. Let a step be 1 part of arithmetic of a total of 1 /
    ``compute``: with twice the arithmetic, the fraction becomes 2 / (1 / ``compute`` + 1) = 2 ``compute`` / (1 +
    ``compute``).
    """
    if not gpu.gpu.half_rate_accumulate:
        return c
    return {**c, "compute": 2 * np.asarray(c["compute"]) / (1 + np.asarray(c["compute"]))}


def compute_gemm_terms(x: Columns, gpu: Hardware, c: Constants, splits: Sequence[int] = K_SPLITS) -> LatencyTerms:
    """A matrix product on the matrix units; before wgmma they outrun the power of boards like the T4."""
    return compute_tiled_gemm_terms(_adapt_to_matrix_units(x, gpu, c), gpu, adjust_for_half_rate(c, gpu), splits)


def _adapt_to_matrix_units(x: Columns, gpu: Hardware, c: Constants) -> Columns:
    """The columns of products there, whose clock the board's power limits on older GPUs, and scales on AMD's."""
    if gpu.tensor_class == AMD_CLASS:
        slowdown = 1 + x["block_scaled"] * x["tflops"] / (gpu.vector_tflops * SCALED_BLOCK_DEPTH)
        return {**x, "tflops": x["tflops"] / slowdown}
    if gpu.tensor_class != POWER_LIMITED_CLASS:
        return x
    watts_per_tflops = gpu.watts_per_tflops * gpu.vector_tflops / (x["tflops"] * x["size"] / 2)
    return {**x, "tflops": x["tflops"] * compute_sustained_clock(watts_per_tflops, c["matrix_power"])}


def compute_tiled_gemm_terms(x: Columns, gpu: Hardware, c: Constants, splits: Sequence[int] = K_SPLITS) -> LatencyTerms:
    """A (batched) matrix product: best tile and split along k.

    On NVIDIA GPUs, the operands of a job's GEMMs first come from memory, which has a longer latency than the cache.
    Rows that do not start at multiples of 16 bytes are loaded and stored in smaller pieces.
    """
    best = np.concatenate([_select_best_tile(*some)[0] for some in _slice_products(x, gpu, c, splits)], axis=1)
    cold = (x["cold"] > 0) & (gpu.gpu.vendor == "nvidia")
    return LatencyTerms(c["floor"] / gpu.clock_mhz * np.where(cold, c["cold"], 1.0), *best)


def choose_gemm_tiles(
    x: Columns, gpu: Hardware, c: Constants, traced: tuple[Floats, Floats], *, on_matrix_units: bool
) -> Tiles:
    """Return the tiles and splits for which products take least, as the laws choose them.

    ``traced`` are rows and columns of the traced tiles, NaN where unknown.
    """
    x, c, splits = _adapt_to_units(x, gpu, c, on_matrix_units=on_matrix_units)
    power = np.concatenate([_try_tiles(*some)[1] for some in _slice_products(x, gpu, c, splits)], axis=1)
    number = _find_least(power)
    tile, split_k = np.array(GEMM_TILES)[number // len(splits)], np.array(splits)[number % len(splits)]
    blocks = x["batch"] * np.ceil(x["m"] / tile[:, 0]) * np.ceil(x["n"] / tile[:, 1]) * split_k
    kept_ratio = _compute_kept_ratio(power.reshape(len(GEMM_TILES), len(splits), -1).min(axis=1), *traced)
    return Tiles(tile[:, 0], tile[:, 1], split_k, blocks / gpu.sms, kept_ratio)


def _compute_kept_ratio(of_tile: Floats, tile_m: Floats, tile_n: Floats) -> Floats:
    """How many times as long products take with given tiles as with the best; NaN for tiles that the laws don't try.

    For example 1.2 where a tile of 128 x 256 leaves half of the SMs of a larger GPU idle.
    """
    is_given = np.array([(tile_m == m) & (tile_n == n) for m, n in GEMM_TILES])
    given = np.where(is_given, of_tile, np.inf).min(axis=0)
    return np.where(np.isinf(given), np.nan, (given / of_tile.min(axis=0)) ** 0.25)


def _find_least(power: Floats) -> Ints:
    """The first of the tiles and splits for which each product takes least."""
    return np.asarray((power == power.min(axis=0)).argmax(axis=0))


def _adapt_to_units(
    x: Columns, gpu: Hardware, c: Constants, *, on_matrix_units: bool
) -> tuple[Columns, Constants, Sequence[int]]:
    """Columns, constants and splits that tiles are chosen by."""
    if on_matrix_units:
        return _adapt_to_matrix_units(x, gpu, c), adjust_for_half_rate(c, gpu), K_SPLITS
    return adapt_to_vector_units(x, gpu, c), c, DEEP_K_SPLITS


def _slice_products(
    x: Columns, gpu: Hardware, c: Constants, splits: Sequence[int]
) -> Iterator[tuple[Columns, Hardware, Constants, Sequence[int]]]:
    """Yield what tiles are chosen by, of some rows at a time."""
    m, n, batch, size = x["m"], x["n"], x["batch"], x["size"]
    unaligned = np.asarray(c["unaligned"]) * (gpu.tensor_class != AMD_CLASS)
    any_tile = {
        **{name: x[name] for name in ("m", "n", "k", "batch", "size")},
        "flops_per_cycle": x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz,
        "unaligned": unaligned * x["unaligned_loads"],
        "stores": unaligned * x["unaligned_stores"] * batch * m * n / gpu.sms / gpu.clock_mhz,
        "stream": compute_memory_us(x["work_bytes"], gpu, c),
        # One block alone streams its operands at no more than some SMs' share of the memory.
        "alone": c["fill"] * size * (gpu.sms / gpu.bandwidth_gbps / 1e3),
        "partial": 8.0 * batch * m * n / (gpu.bandwidth_gbps * c["reduce"]) / 1e3,
    }
    for first in range(0, max(m.size, 1), CHUNK_ROWS):
        rows = slice(first, first + CHUNK_ROWS)
        yield {name: column[rows] for name, column in any_tile.items()}, gpu, select_rows(c, rows), splits


def _select_best_tile(x: Columns, gpu: Hardware, c: Constants, splits: Sequence[int]) -> tuple[Floats, Ints]:
    """Compute and memory time, (2, rows), with the tile and split for which a product takes least; and their number."""
    tried, time = _try_tiles(x, gpu, c, splits)
    best = _find_least(time)
    return np.stack([terms[best, np.arange(best.size)] for terms in tried]), best


def _try_tiles(x: Columns, gpu: Hardware, c: Constants, splits: Sequence[int]) -> tuple[list[Floats], Floats]:
    """Compute and memory time with each tile and split, (tiles x splits, rows), and the fourth power of their overlap.

    All of them are tried at once, in arrays of (tiles, splits, rows): tiles along the first axis, splits along the
    second. For example, m = n = 4096 with tiles of 128 x 128 has 1024 tiles; on 132 SMs these are 7.8 waves, counted as
    8 if waves are fully quantized.
    """
    (tile_m, tile_n), split = np.array(GEMM_TILES, dtype=np.float64).T[..., None, None], np.array(splits)[:, None]
    cycles = compute_tile_step_cycles(tile_m, tile_n, x["flops_per_cycle"], x["size"], c) + x["unaligned"] * (
        tile_m + tile_n
    )
    depth = np.maximum(x["k"] / split, MIN_SPLIT_K * (split > 1))
    tiles = x["batch"] * np.ceil(x["m"] / tile_m) * np.ceil(x["n"] / tile_n) / gpu.sms
    compute = count_waves(tiles * split, c)
    compute *= depth + c["prologue"]
    compute *= cycles / gpu.clock_mhz
    compute += x["stores"]
    memory = (tile_m + tile_n) * (depth * x["alone"])
    memory += x["stream"] + x["partial"] * (split * (split > 1))
    tried = [terms.reshape(terms.shape[0] * terms.shape[1], -1) for terms in (compute, memory)]
    return tried, compute_overlap_power(*tried)


def compute_sustained_tflops(x: Columns, gpu: Hardware, c: Constants) -> Floats:
    """Rate of the vector units that the board's power allows and integers leave."""
    tflops = x["tflops"] * compute_sustained_clock(gpu.watts_per_tflops, c["power"])
    return tflops * c["shared_lanes"] if gpu.architecture in SHARED_LANE_ARCHITECTURES else tflops


def adapt_to_vector_units(x: Columns, gpu: Hardware, c: Constants) -> Columns:
    """The columns of products there, whose clock the board's power limits and which load element by element."""
    aligned = np.zeros_like(x["k"])
    return {**x, "tflops": compute_sustained_tflops(x, gpu, c), "unaligned_loads": aligned, "unaligned_stores": aligned}


def compute_gemm_fp32_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A matrix product on the vector units; kernels of their own multiply by a vector, once through the matrix."""
    x = adapt_to_vector_units(x, gpu, c)
    product, vector = compute_tiled_gemm_terms(x, gpu, c, DEEP_K_SPLITS), np.minimum(x["m"], x["n"]) == 1
    arithmetic = x["work_flops"] / (x["tflops"] * 1e6)
    stream = compute_memory_us(x["work_bytes"], gpu, {**c, "memory": c["vector"]})
    return replace(
        product,
        compute_us=np.where(vector, np.minimum(product.compute_us, arithmetic), product.compute_us),
        memory_us=np.where(vector, stream, product.memory_us),
    )


def compute_moe_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Two grouped products of a gated expert layer: best tile over rows, every active expert's weights streamed.

    In a benchmark loop the weights are in the cache as far as they fit. In a job, other layers have used the cache in
    between.
    """
    hidden, inter = x["hidden"], x["inter"] / x["tp"]
    active, per_expert = _count_active_experts(x, c)
    rows = active * per_expert
    weights = active * 3 * hidden * inter * x["size"]
    passes = rows * (hidden * c["permute"] * 4 + inter * 6.0)
    from_memory = weights / gpu.bandwidth_gbps / 1e3 / c["memory"]
    streamed = np.where(x["cold"] > 0, from_memory, compute_cyclic_us(weights, gpu, c))
    memory = streamed + passes / gpu.bandwidth_gbps / 1e3 / c["memory"]
    best_compute = _compute_expert_tiles_us(x, gpu, c)[0].min(axis=0)
    return LatencyTerms(c["floor"] / gpu.clock_mhz + 0 * rows, best_compute, memory)


def choose_expert_tiles(x: Columns, gpu: Hardware, c: Constants) -> Tiles:
    """Return the tiles for which the two products of experts take least, and the waves of the first."""
    compute_us, waves = _compute_expert_tiles_us(x, gpu, c)
    best, one = compute_us.argmin(axis=0), np.ones(compute_us.shape[1], dtype=np.intp)
    return Tiles(np.array(EXPERT_ROW_TILES)[best], EXPERT_TILE_N * one, one, waves[best, np.arange(best.size)])


def _compute_expert_tiles_us(x: Columns, gpu: Hardware, c: Constants) -> tuple[Floats, Floats]:
    """Compute time of both products and waves of the first, each (tiles over rows, rows)."""
    hidden, inter = x["hidden"], x["inter"] / x["tp"]
    active, per_expert = _count_active_experts(x, c)
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    times, waves = [], []
    for tile in EXPERT_ROW_TILES:
        cycles = compute_tile_step_cycles(tile, EXPERT_TILE_N, flops_per_cycle, x["size"], c)
        row_tiles = active * (per_expert / tile + np.where(per_expert > tile, 0.5, 1.0) ** c["ragged"])
        blocks = [row_tiles * np.ceil(wide / EXPERT_TILE_N) / gpu.sms for wide in (2 * inter, hidden)]
        rounds = (
            count_waves(each, c) * (deep + c["prologue"]) * cycles / gpu.clock_mhz
            for each, deep in zip(blocks, (hidden, inter), strict=True)
        )
        times.append(sum(rounds, np.zeros_like(active)))
        waves.append(blocks[0])
    return np.stack(times), np.stack(waves)


def _count_active_experts(x: Columns, c: Constants) -> tuple[Floats, Floats]:
    """Experts that any token chooses, and rows of each."""
    local = np.maximum(x["experts"] / x["ep"], 1.0)
    rows = np.maximum(x["tokens"] * x["topk"] / x["ep"] ** c["ep_power"], 1.0)
    evenness = np.where(x["skewed"] > 0, c["evenness"], 1.0)
    active = np.maximum(local * -np.expm1(-evenness * x["tokens"] * x["topk"] / x["experts"]), 1.0)
    return active, rows / active


WINOGRAD_TILE_OUTPUTS = 4
"""Outputs of a tile of the transformed products, each way: F(4x4, 3x3) takes 36 multiplications for 16 (Lavin and Gray,
arXiv:1509.09308), as cuDNN's batches of 36 products show."""
IMAGE_MULTIPLE = 16
"""The transformed products of fewer images are as large, by the grids of cuDNN's kernels."""
FUSED_BLOCK_SHAPES = ((1, 8, 16), (4, 8, 4), (4, 4, 8), (4, 2, 16), (2, 4, 16), (2, 8, 8))
"""Images, rows and columns of outputs that a block of cuDNN's fused kernels computes, by their names (tile148t: one
image, 4 x 8 tiles of 2 x 2 outputs) and their grids."""
FUSED_BLOCK_SHAPE_COUNTS = {"7": 1, "8": 2, "9": 2, "10": 2, "12": 2}
"""How many of these there are for a compute capability: before Volta all."""
FUSED_BLOCK_FILTERS = 32
"""Output channels of such a block."""
FUSED_BLOCK_MULTIPLIES = 16 * 32 * FUSED_BLOCK_FILTERS
"""Of one for each input channel: F(2x2, 3x3) takes 16 for a tile, of which a block has 32."""
FUSED_WINDOW_SIZE = 9
GROUPED_RATE_FRACTION, GROUPED_TRAFFIC_RATIO = 0.8, 2.2
"""Of the matrix units' rate, and of compulsory traffic, in cuDNN's kernels for groups: what whole jobs of timm's tables
(AMP; RTX 3090 and 4090 of PyTorch 2.4, RTX 5090 of 2.9) leave for their groups. NFNet-F0 and RegNetX 160, 128 channels
wide, take 0.8 to 1.1 of the rate with channels last, 0.6 with channels first on the RTX 5090; ResNeXt-50 32x4d 1.1 to
2.4 times the bytes."""
GROUPED_TILE_FRACTION, GROUPED_TILE_WIDTH = 0.65, 128
"""Of the matrix units' rate where groups aren't a power of two wide, and how many channels a tile has room for: a group
of 48 fills 0.375 of one. Groups of 24 and 48 (RegNetX 032, RegNetY 016) take 9 and 22 TFLOP/s of 71 on the RTX 3090, 18
to 24 and 34 of 165 on the RTX 4090, 25 and 48 of 210 on the RTX 5090."""
GROUPED_GRADIENT_VECTOR_FRACTION = 0.05
"""Of the vector units' rate, of gradients with channels last: nine of RegNetX and RegNetY take 0.9 to 4 TFLOP/s for
35.6 of an RTX 3090 (cuDNN 8.3; pytorch/pytorch#70954, and #34977 of a V100, tell of it). With channels first they take
no longer than the forward pass."""


def compute_conv_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A convolution on the matrix units, as the product that it implies."""
    return compute_gemm_terms(x, gpu, c, DEEP_K_SPLITS)


def compute_cudnn_grouped_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A convolution of groups by cuDNN: in kernels made for them, or in tiles that a group doesn't fill.

    Of gradients with channels last it has fewer kernels, and computes one group after the other elsewhere.
    """
    missing = ((x["of_data"] > 0) | (x["of_weights"] > 0)) & (x["by_pixel"] > 0)
    even = _is_power_of_two(x["inputs"]) & _is_power_of_two(x["filters"])
    made_for_it = even & (~missing | _is_power_of_two(x["batch"]))
    filled = np.minimum(x["filters"] / GROUPED_TILE_WIDTH, 1.0)
    tiled = GROUPED_TILE_FRACTION * filled * x["tflops"]
    otherwise = np.where(missing, GROUPED_GRADIENT_VECTOR_FRACTION * gpu.vector_tflops, tiled)
    tflops = np.where(made_for_it, GROUPED_RATE_FRACTION * x["tflops"], otherwise)
    return LatencyTerms(
        c["floor"] / gpu.clock_mhz + np.zeros_like(tflops),
        x["work_flops"] / (tflops * 1e6),
        compute_memory_us(GROUPED_TRAFFIC_RATIO * x["work_bytes"], gpu, c),
    )


def _is_power_of_two(count: Floats) -> Bools:
    return np.asarray(np.log2(count) % 1 == 0)


def compute_miopen_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A convolution by MIOpen, as the product that it implies, whose SMs also load its images.

    An MI100 is as quick as an MI210, whose memory is a third faster but whose SMs together load no more.
    """
    product = compute_conv_terms(x, gpu, c)
    return replace(product, compute_us=combine_overlapped_us(product.compute_us, _compute_loads_us(x, gpu, c)))


def compute_grouped_conv_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """The same of groups, or window by window on the vector units."""
    product = compute_miopen_terms(x, gpu, c)
    arithmetic_us = x["work_flops"] / (gpu.vector_tflops * np.asarray(c["direct"]) * 1e6)
    direct_us = arithmetic_us + _compute_loads_us(x, gpu, c)
    return _take_quickest([product, replace(product, compute_us=direct_us)])


def _compute_loads_us(x: Columns, gpu: Hardware, c: Constants) -> Floats:
    """Time of the SMs' ports for what is loaded of the images, time and again for windows that overlap."""
    ports_gbps = L2_BYTES_PER_SM_CLOCK * gpu.sms * gpu.clock_mhz / 1e3
    return np.asarray(x["work_bytes"] / (ports_gbps * np.asarray(c["loads"])) / 1e3)


def compute_conv_fp32_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A convolution on the vector units, by the quickest way."""
    ways = [
        compute_gemm_fp32_terms(x, gpu, c),
        _compute_winograd_terms(x, gpu, c),
        _compute_fused_winograd_terms(x, gpu, c),
    ]
    return _take_quickest(ways)


def _take_quickest(ways: Sequence[LatencyTerms]) -> LatencyTerms:
    """Return the terms of the way that takes each row least."""
    best = np.argmin([way.time_us for way in ways], axis=0)
    floor, compute, memory = ([getattr(way, part) for way in ways] for part in ("floor_us", "compute_us", "memory_us"))
    return LatencyTerms(np.choose(best, floor), np.choose(best, compute), np.choose(best, memory))


def _compute_winograd_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Kernels that transform the inputs and the filters, a batch of products, and one that transforms back."""
    images = IMAGE_MULTIPLE * np.ceil(x["images"] / IMAGE_MULTIPLE)
    tiles = images * np.ceil(x["height"] / WINOGRAD_TILE_OUTPUTS) * np.ceil(x["width"] / WINOGRAD_TILE_OUTPUTS)
    inputs, filters, of_weights = x["inputs"], x["filters"], x["of_weights"] > 0
    batch = x["batch"] * (WINOGRAD_TILE_OUTPUTS + np.sqrt(x["window_size"]) - 1) ** 2
    moved = batch * x["size"] * (tiles * (inputs + filters) + inputs * filters)
    m, k = np.where(of_weights, inputs, tiles), np.where(of_weights, tiles, inputs)
    products = {**x, "batch": batch, "m": m, "n": filters, "k": k, "work_bytes": moved}
    batched = {**c, "compute": c["compute"] * c["batched"]}
    product = compute_tiled_gemm_terms(adapt_to_vector_units(products, gpu, c), gpu, batched, DEEP_K_SPLITS)
    # One kernel after the other: what the transforms take comes on top of either.
    transforms = (x["work_bytes"] + moved) / (gpu.bandwidth_gbps * c["transform"]) / 1e3
    return LatencyTerms(product.floor_us, product.compute_us + transforms, product.memory_us + transforms)


def _compute_fused_winograd_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """One kernel, of 3x3 windows, which has none for gradients of weights."""
    known = FUSED_BLOCK_SHAPES[: FUSED_BLOCK_SHAPE_COUNTS.get(gpu.gpu.compute_capability.split(".")[0])]
    tilings = [
        np.ceil(x["images"] / images) * np.ceil(x["height"] / height) * np.ceil(x["width"] / width)
        for images, height, width in known
    ]
    blocks = x["batch"] * np.ceil(x["filters"] / FUSED_BLOCK_FILTERS) * np.min(tilings, axis=0)
    flops_per_us = compute_sustained_tflops(x, gpu, c) * 1e6 * c["compute"] * c["fused"]
    block_us = (x["inputs"] + c["start"]) * 2.0 * FUSED_BLOCK_MULTIPLIES / (flops_per_us / gpu.sms)
    exists = (x["window_size"] == FUSED_WINDOW_SIZE) & (x["of_weights"] == 0)
    compute = np.where(exists, count_waves(blocks / gpu.sms, c) * block_us, np.inf)
    return LatencyTerms(
        c["floor"] / gpu.clock_mhz + np.zeros_like(blocks), compute, compute_memory_us(x["work_bytes"], gpu, c)
    )
