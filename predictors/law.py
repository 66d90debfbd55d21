"""The analytic latency law: a floor plus compute and memory time, with a handful of fitted constants per law.

Every law has the form `floor + extra + (compute^4 + memory^4)^(1/4)`; the tile or split of a matrix product is the
one for which this is least, as a library's heuristics would choose it. All constants are positive and
dimensionless, or in clock cycles, so that they carry over to a GPU nobody measured. Constants are kept as
logarithms: an effect of a GPU, of a class of GPUs or of a framework is a number added to one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from predictors.machine import L2_BYTES_PER_SM_CLOCK, Machine

Array = npt.NDArray[np.float64]
Columns = Mapping[str, Array]
Constants = Mapping[str, Array | float]

TILES = ((16, 64), (32, 64), (64, 32), (64, 64), (128, 64), (64, 128), (128, 128), (64, 256), (128, 256), (256, 128))
SPLITS = (1, 2, 4, 8, 16)
LEAST_SPLIT_K = 128
CYCLIC_EDGE = 8.0
"""How sharply the cache's rate ends where what is read again and again outgrows the cache."""
POWER_LIMITED = "mma"
"""The class of matrix units whose clock follows from the board's power."""
WIDE_COLS = 1024
"""Up to which number of columns PyTorch's row kernels keep a row in a warp's registers."""


@dataclass(frozen=True)
class Terms:
    """What a kernel's time is made of, in microseconds."""

    floor_us: Array
    compute_us: Array
    memory_us: Array

    @property
    def body_us(self) -> Array:
        """Compute and memory time, overlapped."""
        return overlap(self.compute_us, self.memory_us)

    @property
    def time_us(self) -> Array:
        """The whole kernel."""
        return self.floor_us + self.body_us


@dataclass(frozen=True)
class Law:
    """How one family's time follows from shape and datasheet.

    Attributes:
        terms: columns, GPU and constants -> `Terms`.
        priors: the constants: prior median and prior standard deviation of the logarithm.
        effects: the constants that a GPU, a class of GPUs or a framework may shift.
        floor_is_exact: the learned correction leaves the floor alone, which keeps the time growing with the work.
        of_op: the terms are those of the whole op, of which a kernel does a share; otherwise of the kernel's own bytes.
        travels: how much of the learned correction holds on a GPU when neither it nor a twin of it was measured.
    """

    terms: Callable[[Columns, Machine, Constants], Terms]
    priors: Mapping[str, tuple[float, float]]
    effects: tuple[str, ...] = ("floor", "compute", "memory")
    floor_is_exact: bool = False
    of_op: bool = True
    travels: float = 0.75

    def at(self, x: Columns, share: Array, gpu: Machine, c: Constants) -> Terms:
        """The terms of kernels that each do a share of their op's work; the floor is a kernel's own."""
        terms = self.terms(x, gpu, c)
        if not self.of_op:
            return terms
        return replace(terms, compute_us=terms.compute_us * share, memory_us=terms.memory_us * share)

    def correctable(self, terms: Terms) -> Array:
        """The part of each kernel's time that the learned correction may change."""
        share = terms.body_us / terms.time_us
        return share if self.floor_is_exact else np.ones_like(share)


def overlap(*times_us: Array) -> Array:
    """Two or more resources used at once: a fourth-power mean, near their maximum."""
    total = sum(np.square(np.square(t)) for t in times_us)
    return np.asarray(np.sqrt(np.sqrt(total)))


def memory_us(x_bytes: Array, gpu: Machine, c: Constants) -> Array:
    """Time to move `x_bytes`, the part of it that the last-level cache holds at the cache's rate."""
    return _moved_us(x_bytes, 1 / (1 + (x_bytes / (gpu.cache_bytes * c["cache_share"])) ** 3), gpu, c)


def cyclic_us(x_bytes: Array, gpu: Machine, c: Constants) -> Array:
    """The same of what is read from one end to the other, time and again: all of it stays in the cache, or none."""
    return _moved_us(x_bytes, 1 / (1 + (x_bytes / (gpu.held_bytes * c["cache_share"])) ** CYCLIC_EDGE), gpu, c)


def _moved_us(x_bytes: Array, hit: Array, gpu: Machine, c: Constants) -> Array:
    memory_gbps = gpu.bandwidth_gbps * c["memory"]
    cache_gbps = np.maximum(gpu.cache_gbps * c["cache"], memory_gbps)
    gbps = memory_gbps + (cache_gbps - memory_gbps) * hit
    return np.asarray(x_bytes / gbps / 1e3)


def sustained(watts_per_tflops: Array | float, enough: Array | float) -> Array:
    """Share of the boost clock that the board's power allows some arithmetic: min(1, (power / enough)^0.85), smooth."""
    x = (np.asarray(watts_per_tflops) / np.asarray(enough)) ** 0.85
    return np.asarray(x / (1 + x**6) ** (1 / 6))


def rounds(blocks: Array, slots: float, c: Constants) -> Array:
    """Rounds of blocks over the SMs: between the exact ratio and its ceiling, never below one."""
    ratio = blocks / slots
    least = np.maximum(ratio, 1.0)
    return np.asarray(least * (np.ceil(ratio) / least) ** c["quantised"])


def product_cycles(tile_m: int, tile_n: int, flops_per_cycle: Array, size: Array, c: Constants) -> Array:
    """Clocks one SM takes for one step along k of a tile: arithmetic, operands from L2, or plain latency."""
    compute = 2.0 * tile_m * tile_n / (flops_per_cycle * c["compute"])
    feed = (tile_m + tile_n) * size / (64.0 * np.asarray(c["feed"]))
    return overlap(compute, feed, np.asarray(c["latency"]) + 0 * compute)


def gemm_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A matrix product on the matrix units; before wgmma they outrun the power of boards like the T4."""
    if gpu.tensor_class == POWER_LIMITED:
        watts_per_tflops = gpu.watts_per_tflops * gpu.vector_tflops / (x["tflops"] * x["size"] / 2)
        x = {**x, "tflops": x["tflops"] * sustained(watts_per_tflops, c["matrix_power"])}
    return product_terms(x, gpu, c)


def product_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A (batched) matrix product: best tile and split along k.

    On NVIDIA's GPUs the operands of a job's products come from memory at first, which takes longer to answer than the
    cache, and rows that don't start at multiples of 16 bytes are loaded and stored piece by piece.
    """
    m, n, k, batch = x["m"], x["n"], x["k"], x["batch"]
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    stream = memory_us(x["work_bytes"], gpu, c)
    nvidia = gpu.tensor_class != "mfma"
    unaligned = np.asarray(c["unaligned"]) * nvidia
    stores = unaligned * x["unaligned_stores"] * batch * m * n / gpu.sms / gpu.clock_mhz
    best_compute = best_memory = best = np.full_like(m, np.inf)
    for tile_m, tile_n in TILES:
        cycles = product_cycles(tile_m, tile_n, flops_per_cycle, x["size"], c)
        cycles = cycles + unaligned * x["unaligned_loads"] * (tile_m + tile_n)
        tiles = batch * np.ceil(m / tile_m) * np.ceil(n / tile_n)
        for split in SPLITS:
            blocks = tiles * split
            depth = np.maximum(k / split, LEAST_SPLIT_K) if split > 1 else k
            compute = rounds(blocks, gpu.sms, c) * (depth + c["prologue"]) * cycles / gpu.clock_mhz + stores
            # One block alone streams its operands at no more than some SMs' share of the memory.
            alone = (tile_m + tile_n) * depth * x["size"] * gpu.sms / gpu.bandwidth_gbps / 1e3
            memory = stream + c["fill"] * alone
            if split > 1:
                memory = memory + 8.0 * batch * m * n * split / (gpu.bandwidth_gbps * c["reduce"]) / 1e3
            time = overlap(compute, memory)
            better = time < best
            best = np.where(better, time, best)
            best_compute = np.where(better, compute, best_compute)
            best_memory = np.where(better, memory, best_memory)
    quantise = x["quantised_input"] * (c["quantise"] * 3 * m * k / gpu.bandwidth_gbps / 1e3)
    floor = c["floor"] / gpu.clock_mhz * np.where(x["cold"] * nvidia > 0, c["cold"], 1.0)
    return Terms(floor + quantise, best_compute, best_memory)


def gemm_fp32_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A matrix product on the vector units, whose clock the board's power limits and which load element by element."""
    aligned = np.zeros_like(x["k"])
    tflops = x["tflops"] * sustained(gpu.watts_per_tflops, c["power"])
    return product_terms({**x, "tflops": tflops, "unaligned_loads": aligned, "unaligned_stores": aligned}, gpu, c)


def prefill_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """Attention tiled over queries: matrix products plus exponentials, blocks of 128 queries."""
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    head_dim = 32 * np.ceil(x["head_dim"] / 32)
    products = 512.0 * head_dim / (flops_per_cycle * c["compute"])
    cycles_per_key = x["passes"] * (products + 8.0 * c["softmax"])
    blocks = x["batch"] * x["heads"] * np.ceil(x["q_len"] / 128)
    # A block works on all the keys of its last query: half a block more than its queries have on average.
    rows = np.minimum(x["q_len"], 128)
    keys = np.minimum(x["attended"] / x["q_len"] + rows / 2, x["reach"])
    # The longest block: the keys of the last query, and of the others of its block where a window moves along.
    longest = np.where(x["window"] > 0, np.minimum(x["window"] + rows, x["reach"]), x["reach"])
    # A kernel may work on what is outside of the window too, and mask it.
    outside = c["masked"] * (x["window"] > 0)
    keys = keys + outside * np.maximum(np.minimum(_mean_keys(x) + rows / 2, x["kv_len"]) - keys, 0) + c["prologue"]
    longest = np.asarray(longest + outside * np.maximum(x["kv_len"] - longest, 0) + c["prologue"])
    spread = blocks * keys / gpu.sms * rounds(blocks, gpu.sms, c) / np.maximum(blocks / gpu.sms, 1.0)
    handling = np.maximum(blocks / gpu.sms, 1.0) * c["per_block"] * head_dim / 128
    compute = (overlap(spread, longest) * cycles_per_key + handling) / gpu.clock_mhz
    again = c["traffic"] * x["work_bytes"] / (gpu.cache_gbps * c["cache"]) / 1e3
    memory = (memory_us(x["work_bytes"], gpu, c) + again) * (1 + c["fill"] * np.minimum(gpu.sms / blocks, 64.0))
    return Terms(c["floor"] / gpu.clock_mhz + 0 * compute, compute, memory)


def _mean_keys(x: Columns) -> Array:
    """Keys that a query attends to on average where there is no window."""
    before = np.maximum(x["kv_len"] - x["q_len"], 0)
    return np.asarray(np.where(x["causal"] > 0, before + np.minimum(x["q_len"], x["kv_len"]) / 2, x["kv_len"]))


def decode_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """Attention of a few queries: the KV cache streamed, split over the SMs, heads of one group together.

    Where the kernel takes heads one by one, each reads the group's keys again, from the cache.
    """
    keys = 64 * np.ceil(x["reach"] / 64)
    reads = x["key_reads_on_mma"] if gpu.tensor_class == "mma" else x["key_reads"]
    units = x["batch"] * x["kv_heads"] * reads
    grouped = np.ceil(x["heads"] / x["kv_heads"] / reads * x["q_len"] / 16) * 16
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    products = 4.0 * units * keys * grouped * x["head_dim"] / (flops_per_cycle * c["compute"])
    handling = units * (keys * c["per_key"] + c["per_block"])
    serial = c["serial"] * keys ** c["serial_power"]
    compute = ((products + handling) / gpu.sms + serial) / gpu.clock_mhz
    blocks = units * np.maximum(keys / 256, 1.0)
    memory = cyclic_us(x["work_bytes"], gpu, c) * (1 + c["fill"] * np.minimum(gpu.sms / blocks, 64.0))
    again = c["again"] * x["work_bytes"] * (reads - 1) / (gpu.cache_gbps * c["cache"]) / 1e3
    return Terms(c["floor"] / gpu.clock_mhz + 0 * compute, compute, memory + again)


def moe_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """Two grouped products of a gated expert layer: best tile over rows, every active expert's weights streamed."""
    hidden, inter = x["hidden"], x["inter"] / x["tp"]
    local = np.maximum(x["experts"] / x["ep"], 1.0)
    rows = np.maximum(x["tokens"] * x["topk"] / x["ep"] ** c["ep_power"], 1.0)
    evenness = np.where(x["skewed"] > 0, c["evenness"], 1.0)
    active = np.maximum(local * -np.expm1(-evenness * x["tokens"] * x["topk"] / x["experts"]), 1.0)
    per_expert = rows / active
    flops_per_cycle = x["tflops"] * 1e6 / gpu.sms / gpu.clock_mhz
    weights = active * 3 * hidden * inter * x["size"]
    passes = rows * (hidden * c["permute"] * 4 + inter * 6.0)
    memory = cyclic_us(weights, gpu, c) + passes / gpu.bandwidth_gbps / 1e3 / c["memory"]
    best_compute = np.full_like(rows, np.inf)
    for tile in (16, 32, 64, 128):
        cycles = product_cycles(tile, 128, flops_per_cycle, x["size"], c)
        row_tiles = active * (per_expert / tile + np.where(per_expert > tile, 0.5, 1.0) ** c["ragged"])
        time: Array = np.zeros_like(rows)
        for wide, deep in ((2 * inter, hidden), (hidden, inter)):
            blocks = row_tiles * np.ceil(wide / 128)
            time = time + rounds(blocks, gpu.sms, c) * (deep + c["prologue"]) * cycles / gpu.clock_mhz
        best_compute = np.minimum(best_compute, time)
    return Terms(c["floor"] / gpu.clock_mhz + 0 * rows, best_compute, memory)


def stream_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A kernel that reads and writes memory once, with some instructions for each element."""
    return _streamed(x, gpu, c, np.asarray(c["element"]), np.ones(1))


def row_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """The same of whole rows: a wide one doesn't fit a warp's registers, in an uneven one 16-byte loads don't align."""
    wide, uneven = x["cols"] > WIDE_COLS, x["uneven"] > 0
    per_element = c["element"] * np.where(wide, 1.0, c["narrow"]) * np.where(uneven, c["uneven"], 1.0)
    return _streamed(x, gpu, c, per_element, np.where(wide, c["again"], 1.0))


def _streamed(x: Columns, gpu: Machine, c: Constants, per_element: Array, passes: Array) -> Terms:
    """Clocks for each element, and how often the memory is gone through.

    Few blocks draw no more than their SMs' share of what the ports to the cache carry.
    """
    size, busy = x["work_bytes"], np.minimum(x["blocks"], gpu.sms)
    alone = size / (busy * L2_BYTES_PER_SM_CLOCK * c["alone"])
    cycles = np.maximum(x["elements"] * per_element / gpu.sms / c["compute"], alone)
    compute = x["work_flops"] / (gpu.vector_tflops * 1e6) + cycles / gpu.clock_mhz
    return Terms(c["floor"] / gpu.clock_mhz + 0 * size, compute, memory_us(size, gpu, c) * passes)


def memcpy_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A copy by a copy engine, over the link or the memory that `copy_gbps` names."""
    copy = x["work_bytes"] / (x["copy_gbps"] * c["memory"]) / 1e3
    return Terms(c["floor"] / gpu.clock_mhz + 0 * copy, 0 * copy, copy)


_SHARED = {"floor": (4500.0, 0.4), "compute": (0.85, 0.2), "memory": (0.85, 0.15), "cache": (0.9, 0.2),
           "cache_share": (0.7, 0.4), "fill": (0.1, 0.7)}  # fmt: skip
_PRODUCT = {"feed": (0.8, 0.5), "latency": (2.0, 0.5), "prologue": (64.0, 0.7), "quantised": (0.6, 0.4)}

# Hardly fitted: clocks of an SM for each access, as an A100's align1 kernel takes (64 x 64 tiles on 48 SMs, k = 4096,
# 139 us); and watts per TFLOP/s in 16 bit, in units of TSMC 16 nm, with which an A100 holds its clock.
_FIXED = {"unaligned": (0.37, 0.05), "matrix_power": (3.2, 0.02)}

GEMM = Law(gemm_terms, _SHARED | _PRODUCT | _FIXED | {"reduce": (1.5, 0.7), "quantise": (1.0, 0.5), "cold": (1.5, 0.3)})
GEMM_FP32 = Law(
    gemm_fp32_terms,
    dict(GEMM.priors) | {"cold": (1.0, 0.01), "power": (16.0, 0.2), "floor": (4500.0, 0.3)},
    effects=("compute", "memory"),
    floor_is_exact=True,
    travels=0.4,  # with more, narrow products on a B200 take less time the wider they are
)
PREFILL = Law(
    prefill_terms,
    _SHARED
    | {"softmax": (1.0, 0.7), "prologue": (128.0, 0.7), "quantised": (0.6, 0.4)}
    | {"traffic": (2.0, 0.5), "per_block": (3000.0, 1.0), "masked": (0.05, 1.5)},
    effects=("floor", "compute", "memory", "traffic", "per_block", "masked"),
)
DECODE = Law(
    decode_terms,
    _SHARED
    | {"per_key": (4.0, 1.0), "per_block": (1000.0, 1.0), "serial": (10.0, 1.0), "serial_power": (0.5, 0.3)}
    | {"cache_share": (1.1, 0.15), "again": (0.7, 0.4)},
    effects=("floor", "compute", "memory", "per_block"),
)
MOE = Law(
    moe_terms,
    _SHARED
    | _PRODUCT
    | {"ep_power": (0.6, 0.5), "evenness": (0.5, 0.5), "permute": (1.0, 0.7), "ragged": (1.0, 0.5)}
    | {"cache_share": (1.1, 0.15)},
    effects=("floor", "compute", "memory", "ep_power"),
)
STREAM = Law(
    stream_terms,
    {"floor": (3500.0, 0.3), "element": (0.1, 1.0), "alone": (0.15, 0.5), "compute": (1.0, 0.01)}
    | {name: _SHARED[name] for name in ("memory", "cache", "cache_share")},
    effects=("floor", "compute", "memory"),
    floor_is_exact=True,
    of_op=False,
)
ROWS = replace(
    STREAM,
    terms=row_terms,
    priors=dict(STREAM.priors)
    | {"element": (1.0, 0.5), "narrow": (0.5, 0.4), "uneven": (1.1, 0.2), "again": (1.4, 0.3)},
)

LAWS: dict[str, Law] = {
    **{f"gemm {d}": GEMM for d in ("half", "fp8", "fp8_block", "nvfp4")},
    **{f"conv {d}": GEMM for d in ("half", "fp8", "fp8_block", "nvfp4")},
    **{f"moe {d}": MOE for d in ("fp32", "half", "fp8", "fp8_block", "nvfp4")},
    "gemm fp32": GEMM_FP32,
    "conv fp32": GEMM_FP32,
    "prefill": PREFILL,
    "encoder": PREFILL,
    "decode": DECODE,
    **dict.fromkeys(("elementwise", "copy", "reduction", "embedding", "optimizer", "memset"), STREAM),
    "softmax": ROWS,
    "norm": ROWS,
    "memcpy": Law(
        memcpy_terms, {"floor": (2000.0, 0.5), "memory": (0.85, 0.2)}, effects=("floor", "memory"), of_op=False
    ),
}
"""The law of each name that `kernels.with_law` gives."""

STAND_INS: dict[str, str] = {
    "conv half": "gemm half", "conv fp8": "gemm fp8", "conv fp8_block": "gemm fp8_block", "conv nvfp4": "gemm nvfp4",
    "moe fp32": "moe half", "copy": "elementwise", "reduction": "elementwise", "embedding": "elementwise",
    "optimizer": "elementwise", "memset": "elementwise",
}  # fmt: skip
"""Whose constants a law without any measurements borrows."""
