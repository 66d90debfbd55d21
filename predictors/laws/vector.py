"""Compute the terms of kernels that stream memory once, of kernels over whole rows, and of copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from predictors.arrays import Columns, Floats
from predictors.hardware import L2_BYTES_PER_SM_CLOCK, Hardware
from predictors.kernels import DTYPE_BYTES
from predictors.laws.terms import UNKNOWN_BLOCK_COUNT, Constants, LatencyTerms, compute_memory_us

MAX_WARP_ROW_COLS = 1024
"""Up to which number of columns PyTorch's row kernels keep a row in a warp's registers."""
MAX_HELD_ROW_BYTES = {"nvidia": 48 * 1024, "amd": 64 * 1024, "intel": 64 * 1024}
"""Up to what size PyTorch's softmax keeps a row in a block's shared memory (CUDA's and HIP's ``sharedMemPerBlock``;
torch-xpu-ops asks for half of an Intel Xe core's); of a larger one it reads all again."""
MAX_INPUT_FRACTION = 0.75
"""What a row's input is of the bytes, at most, of a kernel that writes such rows as well."""
GENERATED_FLOOR_CYCLES = 4000.0
"""Clocks that a generated reduction takes at least, as an elementwise kernel: 1.9 to 2.9 us in all of those under 5 us
in traces of an H100, an RTX 3060 and an RTX PRO 6000, of which PyTorch's own take 5 on the H100."""
ROW_CYCLES_PER_ELEMENT = {"nvidia": 3.4, "amd": 1.7, "intel": 3.4}
"""What a block of PyTorch's layer and RMS norms takes for an element of its row, as one load waits for another: 3.2 to
4.1 in KernelBench's layer norm on six NVIDIA GPUs (fp32, 4 million columns) and in jobs on an H100 (bf16, 512 to
1,024). AMD's blocks have 256 threads for 128. Nothing was measured on Intel, which counts as NVIDIA."""
CDNA_FLOPS_PER_CYCLE, MAX_LANE_RATIO = 128.0, 2.0
"""In fp32 of an MI100's and an MI210's compute unit, and how many times as many others do, as far as it is known."""
LANE_POWER = 0.5
"""How the clocks of a softmax fall with that ratio on AMD GPUs. Few measurements say so: of its norms, an MI300X, with
twice the lanes, takes 0.75 of the clocks of MI100 and MI210; of its softmax, only short rows were measured."""
SUMMED_ELEMENTS_PER_CYCLE = 0.5
"""Elements that one block of a channel norm's sums takes in: 0.43 to 0.68 on an MI300X, from 8,192 to 125,440 of them
(``batch_norm_collect_statistics_kernel`` and, of three passes counted, ``batch_norm_backward_kernel``)."""
COLUMN_SUM_ELEMENTS_PER_CYCLE = 8.0
"""Elements that a block of 1,024 threads takes in which sums up columns, each thread with its loads in flight: 6.3 in
fp32 and 8.0 in bf16 in jobs on an H100 (``GammaBetaBackwardCUDAKernelTemplate``)."""
COLUMN_SUM_THREADS = 1024.0
SUM_CYCLES_PER_ELEMENT = 0.6
"""What an SM full of such blocks takes for an element: 0.53 to 0.77 on H100, A100 and B200 (KernelBench's instance and
group norms, less their scaling)."""

STREAMED_RATE_FRACTION = 0.8
"""Of the memory's rate, at which look-ups read lists and write sums."""
LEAST_DISTINCT_RATIO = 1.01
"""Of the bytes of different rows over those that a cache needs for half of the rows loaded again."""
HOST_ROWS_RATE_FRACTION = 0.65
"""Of the link's rate, at which rows come from and go to the host's memory, in each direction: FBGEMM's updates in
managed memory take 0.63 on an H100 (NVIDIA/recsys-examples)."""

CYCLES_PER_BLOCK, CYCLES_PER_THREAD, FULL_SM_THREADS = 250.0, 1.1, 2048.0
"""What an SM takes for a block whose threads sum up together, and for each thread of it, where 2,048 threads run at
once: fitted to short rows by ``reduce_kernel`` in jobs on B200, A100 and V100, and to layer norms over few columns."""

LIBRARY_GRADIENT_RATIO = 1.2
"""Time of a library's kernel for a norm's gradient over that of a plain pass over the bytes; a second one, for the
weights', takes 5 to 6 us. It rests on cuDNN's RMS norms: chosen on two of H200, GB200 and GB300, 1.15 to 1.25, and
both together are 6, 6 and 8 % off on the third (tests/validation/notes/tried_kernels.md). 1 switches it off."""
DEPTHWISE_GRADIENT_RATIO = 4.5
"""Of a gradient's time over that of going through its bytes once: what timm's tables of training on an RTX 3090 (AMP,
channels last, cuDNN 8.3) leave for it of MobileNetV2, EfficientNet-B0 and MobileNetV3 is 3.7, 4.9 and 6.8."""


def compute_stream_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A kernel that reads and writes memory once, with some instructions for each element.

    - A kernel that computes the address of each element has several times as many instructions: a broadcast sum in bf16
      takes twice the time of a plain one on an H100. It has still more if neighbours in one tensor are not neighbours
      in another.
    - The instructions of a depthwise convolution grow with the side of its window.
    - The sums of a norm wait for each element.
    - A thread that has much more to do than the others takes its clocks, however little the rest is.
    - A library's gradient of a norm takes longer than its bytes.
    - Sums of columns over many rows take as long as the threads of their few blocks wait for loads.
    """
    sums, columns = x["sums"] > 0, x["column_sums"] > 0
    across = np.where(x["across"] > 0, c["across"], 1.0)
    per_element = c["element"] * np.where(
        x["indexed"] > 0, c["indexed"] * across * np.sqrt(_count_window_elements(x)), 1.0
    )
    per_element = np.where(sums, SUM_CYCLES_PER_ELEMENT, per_element)
    column_rate = COLUMN_SUM_ELEMENTS_PER_CYCLE * x["threads"] / COLUMN_SUM_THREADS
    per_element = np.where(columns, c["compute"] / column_rate, per_element)
    x = {**x, "elements": np.where(sums | columns, x["work_bytes"] / x["size"], x["elements"])}
    alone = np.where(sums, SUMMED_ELEMENTS_PER_CYCLE * x["size"] / L2_BYTES_PER_SM_CLOCK, c["alone"])
    c = {**c, "alone": np.where(columns, 1.0, alone)}
    passes = np.where(x["library_gradient"] > 0, LIBRARY_GRADIENT_RATIO, _count_generated_passes(x, gpu))
    return _compute_streamed_terms(x, gpu, c, per_element, passes, x["serial_clocks"])


def _count_window_elements(x: Columns) -> Floats:
    """Elements of a depthwise convolution's window, of others 1: a side of the product beside the pixels and a 1."""
    m, n, k = x["m"], x["n"], x["k"]
    return np.asarray(m * n * k / np.maximum(np.maximum(m, n), k))


def compute_depthwise_gradient_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A gradient of a depthwise convolution, which goes over its images several times."""
    terms = compute_stream_terms(x, gpu, c)
    again = DEPTHWISE_GRADIENT_RATIO
    return replace(terms, compute_us=again * terms.compute_us, memory_us=again * terms.memory_us)


def compute_row_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """The same of whole rows.

    - A narrow row fits a warp's registers (softmax), or leaves threads of its block idle (norms).
    - In an uneven row, 16-byte loads are not aligned.
    - A row that a block cannot hold is read repeatedly, with fewer instructions per element.
    - The cost of an element grows with a power of its size; the power is near 1 for norms, which mostly wait for loads.
    - Even with few rows, a block goes through its row in steps.
    - An RMS norm sums only squares, no mean.
    - A generated softmax has as few instructions as one over long rows.
    """
    wide, uneven = x["cols"] > MAX_WARP_ROW_COLS, x["uneven"] > 0
    held = x["cols"] * x["size"] <= MAX_HELD_ROW_BYTES[gpu.gpu.vendor]
    per_element = c["element"] * np.where(wide, 1.0, c["narrow"]) * np.where(uneven, c["uneven"], 1.0)
    per_element = per_element * np.where(held & (x["generated"] == 0), 1.0, c["unheld"])
    per_element = per_element * np.where(x["backward"] > 0, c["backward"], 1.0)
    per_element = per_element * (x["size"] / DTYPE_BYTES["fp32"]) ** c["by_size"]
    per_element = per_element * np.where((x["squares"] > 0) & (x["backward"] == 0), c["squares"], 1.0)
    passes = np.where(held, np.where(wide, c["again"], 1.0), c["reread"])
    passes = np.where(x["generated"] > 0, _count_generated_passes(x, gpu), passes)
    return _compute_streamed_terms(
        x, gpu, c, per_element, passes, x["waits"] * x["cols"] * ROW_CYCLES_PER_ELEMENT[gpu.gpu.vendor]
    )


def compute_softmax_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """The same of softmax, for which AMD's compute units with more lanes take fewer clocks."""
    if gpu.gpu.vendor != "amd":
        return compute_row_terms(x, gpu, c)
    lanes = gpu.vector_tflops * 1e6 / gpu.sms / gpu.clock_mhz / CDNA_FLOPS_PER_CYCLE
    return compute_row_terms(x, gpu, {**c, "element": c["element"] / min(lanes, MAX_LANE_RATIO) ** LANE_POWER})


def _count_generated_passes(x: Columns, gpu: Hardware) -> Floats:
    """How often a kernel goes through its memory that Inductor generated; 1 for any other.

    A row that a block cannot hold is read once more to write values that depend on the whole row. The sums of a softmax
    alone take one pass (Inductor's ``prepare_softmax_online``).
    """
    row_bytes = x["cols"] * x["size"]
    read = x["rows"] * row_bytes / np.maximum(x["work_bytes"], 1)
    forward = (x["generated"] > 0) & (x["of_rows"] > 0) & (x["backward"] == 0)
    again = forward & (row_bytes > MAX_HELD_ROW_BYTES[gpu.gpu.vendor]) & (read < MAX_INPUT_FRACTION)
    return np.where(again, 1 + read, 1.0)


def _compute_streamed_terms(
    x: Columns, gpu: Hardware, c: Constants, per_element: Floats, passes: Floats, of_a_block: Floats | float = 0.0
) -> LatencyTerms:
    """Clocks for each element, how often the memory is gone through, and the clocks of a block alone.

    Few blocks occupy as few SMs. A single block reaches only a part of the rate of its SM's port to the cache.
    """
    size, busy = x["work_bytes"], np.minimum(x["blocks"], gpu.sms)
    drawn = L2_BYTES_PER_SM_CLOCK * np.minimum(x["blocks"] * c["alone"], gpu.sms)
    cycles = np.maximum(x["elements"] * per_element / busy / c["compute"], size * passes / drawn)
    cycles = np.maximum(np.maximum(cycles, of_a_block), _compute_short_block_cycles(x, gpu))
    compute = x["work_flops"] / (gpu.vector_tflops * 1e6) + cycles / gpu.clock_mhz
    memory = compute_memory_us(size, gpu, {**c, "memory": c["memory"] * gpu.written_gbps / gpu.bandwidth_gbps})
    floor = np.where(x["generated"] > 0, GENERATED_FLOOR_CYCLES, c["floor"])
    return LatencyTerms(floor / gpu.clock_mhz, compute, memory * passes)


def compute_lookup_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A kernel that looks rows of tables up, or updates them.

    - Rows lie anywhere in the memory, of whose rate they take a smaller part than what lies side by side.
    - Rows that are loaded again come from the cache, if it holds them.
    - Rows of tables in the host's memory come over the link.
    - A warp waits for one row after the other, and the GPU has place for so many warps.
    """
    terms = compute_stream_terms(x, gpu, c)
    memory_gbps = gpu.bandwidth_gbps * c["memory"]
    rows_us = (x["work_bytes"] - x["streamed_bytes"]) / memory_gbps / 1e3
    streamed_us = x["streamed_bytes"] / (gpu.bandwidth_gbps * STREAMED_RATE_FRACTION) / 1e3
    again = np.maximum(x["accessed_bytes"] - x["work_bytes"], 0.0)
    hits = _find_hit_fraction(x, gpu.usable_cache_bytes)
    again_us = again * (hits / np.maximum(gpu.cache_gbps, memory_gbps) + (1 - hits) / memory_gbps) / 1e3
    hosted_us = x["host_bytes"] / (gpu.gpu.pcie_gbps * HOST_ROWS_RATE_FRACTION) / 1e3
    waited = x["warp_clocks"] * gpu.gpu.warp_size / (gpu.sms * gpu.gpu.max_threads_per_sm) / gpu.clock_mhz
    memory_us = np.maximum(rows_us, 0.0) + streamed_us + again_us + hosted_us
    return LatencyTerms(terms.floor_us, np.maximum(terms.compute_us, waited), memory_us)


def _find_hit_fraction(x: Columns, cache_bytes: float) -> Floats:
    """Return the fraction of the rows loaded again that a cache holds: half where it holds ``reuse_bytes``.

    ``1 / (1 + reuse / cache)`` is that of a large table with a few frequent rows. The more of the distinct rows the
    cache has room for, the less is missed; of even draws, whose reuse is half of them, it hits what it has room for.
    """
    reuse, different = x["reuse_bytes"], np.maximum(x["work_bytes"] - x["streamed_bytes"], 1.0)
    distinct = np.where(x["distinct_bytes"] > 0, x["distinct_bytes"], different)
    distinct = np.maximum(distinct, reuse * LEAST_DISTINCT_RATIO)
    lacking = np.maximum(1 - cache_bytes / distinct, 0.0) / (1 - reuse / distinct)
    return cache_bytes / (cache_bytes + reuse * lacking)


def _compute_short_block_cycles(x: Columns, gpu: Hardware) -> Floats:
    """Clocks that an SM takes for its blocks, however short their rows, where the threads of each wait for each other.

    If fewer threads fit an SM, fewer blocks run at once.
    """
    met = (x["meets"] > 0) & (x["blocks"] < UNKNOWN_BLOCK_COUNT)
    clocks = (CYCLES_PER_BLOCK + CYCLES_PER_THREAD * x["threads"]) * FULL_SM_THREADS / gpu.gpu.max_threads_per_sm
    return np.where(met, x["blocks"] / gpu.sms * clocks, 0.0)


def compute_quantise_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Quantising: a pass over the input; where all of it shares one scale, after kernels that find that in another."""
    terms = compute_stream_terms(x, gpu, c)
    kernels = np.where(x["scaled_input"] > 0, 1.0 + c["scale"], 1.0)
    return LatencyTerms(terms.floor_us * kernels, terms.compute_us, terms.memory_us)


def compute_memcpy_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A copy by a copy engine, over the link or the memory that `copy_gbps` names."""
    copy = x["work_bytes"] / (x["copy_gbps"] * c["memory"]) / 1e3
    return LatencyTerms(c["floor"] / gpu.clock_mhz + 0 * copy, 0 * copy, copy)
