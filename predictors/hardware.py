"""Derive from a datasheet the hardware numbers that the laws need, and the dtype that a kernel really runs in."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats
from predictors.gpu import Gpu

DTYPE_FALLBACKS: dict[str, tuple[str, ...]] = {
    "nvfp4": ("mxfp4", "fp8", "bf16", "fp16", "fp32"),
    "mxfp4": ("fp8", "bf16", "fp16", "fp32"),
    "mxfp8": ("fp8", "bf16", "fp16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "fp8_block": ("bf16", "fp16", "fp32"),
    "int8": ("fp16", "fp32"),
    "bf16": ("fp16", "fp32"),
    "fp16": ("fp32",),
    "tf32": ("fp32",),
    "3xtf32": ("fp32",),
    "w4afp8": ("int4_wo",),
    "w4a8_mxfp4_mxfp8": ("w4a16_mxfp4",),
}
"""Dtypes that run instead where a GPU has no units for a dtype, best first."""
ARITHMETIC_DTYPES = {"int4_wo": "bf16", "w4a16_mxfp4": "bf16", "w4afp8": "fp8", "w4a8_mxfp4_mxfp8": "mxfp8"}
"""What products with weights of 4 bits and wider inputs are computed in; any GPU unpacks such weights to 16 bits."""
UNPACKED_TO_16_BIT = ("int4_wo", "w4a16_mxfp4")
UNPACKED_BY_VENDOR: dict[str, dict[str, str]] = {"intel": {"fp8": "bf16"}}
"""Vendor -> formats that its libraries read as they are and compute in another where a GPU has no units for them. On an
Arc Pro B60, vLLM's products in fp8 take 0.56 of the time of those in bf16 for a few tokens, 0.87 for thousands, in two
releases (aiconfigurator-core 0.12.0). It rests on that one GPU; without an entry a GPU runs them in bf16 whole."""


def resolve_dtype(gpu: Gpu) -> pl.Expr:
    """Return the dtype that a row with ``family``, ``dtype``, ``framework`` and ``tensor_core`` runs in on a GPU.

    - fp32 convolutions run as tf32 on NVIDIA Ampere and later, as ``torch.backends.cudnn.allow_tf32`` defaults to true,
      except those that were seen on the vector units.
    - MIOpen's convolutions stay fp32: it has none in TF32.
    - fp32 GEMMs stay fp32, as ``torch.backends.cuda.matmul.allow_tf32`` defaults to false.
    - PyTorch's memory-efficient attention computes fp32 by three GEMMs in TF32 there (its gemm_kernel_utils.h,
      ``OpMultiplyAddFastF32`` from Sm80 on).
    """
    nearest = {dtype: find_supported_dtype(dtype, gpu) for dtype in DTYPE_FALLBACKS}
    by_tf32 = (pl.col("dtype") == "fp32") & pl.lit(has_tf32(gpu))
    convolution = (pl.col("family") == "conv") & pl.col("tensor_core").fill_null(True)
    attention = (pl.col("family") == "attention") & (pl.col("framework") == "memeff")
    dtype = (
        pl.when(by_tf32 & convolution)
        .then(pl.lit("tf32"))
        .when((pl.col("family") == "conv") & (pl.col("dtype") == "tf32") & pl.lit(gpu.vendor == "amd"))
        .then(pl.lit("fp32"))
        .when(by_tf32 & attention)
        .then(pl.lit("3xtf32"))
        .otherwise(pl.col("dtype").replace(nearest))
    )
    tensor = pl.col("family").is_in(["gemm", "conv", "attention", "moe"])
    return pl.when(tensor).then(dtype).otherwise(pl.col("dtype"))


def get_format_key(gpu: Gpu, dtypes: Collection[str]) -> tuple[str | bool, ...]:
    """What `runs_as` depends on: GPUs with the same run every kernel of some dtypes in the same format."""
    return (has_tf32(gpu), *(find_supported_dtype(dtype, gpu) for dtype in DTYPE_FALLBACKS if dtype in dtypes))


def has_tf32(gpu: Gpu) -> bool:
    """Return whether a GPU's matrix units take fp32 as tf32."""
    return gpu.vendor == "nvidia" and gpu.supports("tf32")


def find_supported_dtype(dtype: str, gpu: Gpu) -> str:
    """Return the nearest dtype that a GPU has units for: fp8 on an A100 is bf16, bf16 on a V100 fp16."""
    unpacked = (*UNPACKED_TO_16_BIT, *UNPACKED_BY_VENDOR.get(gpu.vendor, ()))

    def runs(name: str) -> bool:
        return name in unpacked or gpu.supports(ARITHMETIC_DTYPES.get(name, name))

    return next((d for d in (dtype, *DTYPE_FALLBACKS.get(dtype, ())) if runs(d)), "fp32")


L2_BYTES_PER_SM_CLOCK = 64.0
"""Most bytes per clock through one SM's port to the L2 (NVIDIA since Volta, AMD CDNA: 64 B)."""

GEFORCE_CLOCK_FACTOR = 1.15
"""Clock of a GeForce over the boost clock of its datasheet. Large products in 16 bits reach 0.91 to 1.14 of its
printed peak (training/published.csv), those of GPUs that keep to theirs and have power enough 0.95 to 0.98."""

EXPONENTIALS_PER_SM_CLOCK = {"10.3": 32.0}
"""Results per clock of an SM's special function units, by compute capability; 16 elsewhere (CUDA C++ Programming Guide,
arithmetic instructions; AMD CDNA: a quarter of the vector rate). Blackwell Ultra doubles them (NVIDIA's developer blog,
Making Softmax More Efficient with NVIDIA Blackwell Ultra)."""
DELIVERED_BANDWIDTH_FRACTION = {"6.0": 0.82}
"""Share of the printed memory rate that a GPU delivers, over that of others, by compute capability: the V100 delivers
1.5 times what the P100 does (NVIDIA Tesla V100 whitepaper, HBM2 memory architecture), where 900 and 732 GB/s are
printed. FluidX3D's table, below, has 0.69 of the printed rate for the P100 and 0.87 for the V100 PCIe: 0.79."""
INLINE_ECC_BANDWIDTH_FRACTION = 0.85
"""What check bits kept in the memory leave of its rate where as much is written as read. By FluidX3D's table of MLUPs
(ProjectPhysX/FluidX3D at 8986874) of the printed rate: A40 over RTX A6000 0.83 to 0.84, A10 over RTX A5000 0.85, L40S
over RTX 6000 Ada 0.83 to 0.84, T4 over RTX 2070 Super 0.83 to 0.84. Products and decoding, which mostly read, lose too
little to show: with it an L40S that was left out is predicted worse."""
READ_WRITE_BANDWIDTH_FRACTION = {"12.1": 0.85}
"""The same of memory that is slow to turn from reading to writing, by compute capability. FluidX3D's table has 0.65 to
0.72 of the printed rate for the GB10's LPDDR5X, 0.79 to 0.90 for other Blackwells of compute capability 12; a copy
reaches 218 GB/s of 273 (huggingface/kernels#283)."""

MAX_MATRIX_RATE_RATIO = 3.0
"""Of matrix units for each SM and clock, up to which kernels on them are limited alike: an A100's are twice an L40S's,
an H100's four times an H20's."""
MMA_SUFFIX = " on mma"
"""What ends the names of a GPU, and of its architecture, as kernels made for an A100's matrix units see it."""
MMA_FLOPS_PER_SM_CLOCK = 2048.0
"""Of an SM in 16 bit by the instructions of the A100 (mma.sync), whose peak this is. Matrix units of an H100 and a B200
take two and four times as many by their own; FlashAttention 2, which knows mma.sync only, is no faster on a B200 than
on an H100 (tests/validation/notes/kernels.md)."""
RATE_OVER_16_BIT = {"tf32": 1 / 2, "3xtf32": 1 / 6}
"""Rates in wider formats over that."""

_PROCESS_POWER = {
    "6.": 1.0, "7.": 0.8, "8.0": 0.4, "8.6": 0.46, "8.9": 0.28, "9.": 0.28, "10.": 0.28, "12.": 0.28,
    "gfx906": 0.4, "gfx908": 0.4, "gfx90a": 0.4, "gfx94": 0.28, "gfx95": 0.2, "gfx110": 0.28, "gfx12": 0.28,
}  # fmt: skip
"""Power per operation relative to TSMC 16 nm, of 12 nm, 7 nm and 5 nm and Samsung's 8 nm, as the foundries claim."""


@dataclass(frozen=True)
class Hardware:
    """One GPU as the law sees it.

    Attributes:
        slug: Name of the GPU in the weights.
        tensor_class: Generation of the programming model of the matrix units. GPUs of one class run similar kernels.
        architecture: GPUs of the same architecture are siblings, which run the same kernels.
        memory: 'hbm' or 'gddr'.
        sms: Streaming multiprocessors or compute units.
        clock_mhz: Highest sustained clock if power allows.
        clock_factor: ``clock_mhz`` over the clock of the datasheet's peaks.
        bandwidth_gbps: Bandwidth that the memory delivers, in 1e9 bytes/s.
        cache_bytes: Size of the last-level cache.
        watts_per_tflops: Board power over the fp32 vector rate, in units of TSMC 16 nm.
        gpu: The rest of the datasheet.
        matrix_flops_per_clock: Most FLOPs per SM and clock of the matrix units in 16 bit, with the kernels in question.
    """

    slug: str
    tensor_class: str
    architecture: str
    memory: str
    sms: float
    clock_mhz: float
    clock_factor: float
    bandwidth_gbps: float
    cache_bytes: float
    watts_per_tflops: float
    gpu: Gpu
    matrix_flops_per_clock: float = math.inf

    @property
    def cache_gbps(self) -> float:
        """Rate of the last-level cache: the geometric mean of the rate of all SM ports and that of the memory.

        Within 20 % of the published L2 rates from P100 (1.8 TB/s) over A100 (4.4) and RTX 4090 (4.5) to MI300X (15).
        """
        ports = L2_BYTES_PER_SM_CLOCK * self.sms * self.clock_mhz / 1e3
        return max(math.sqrt(ports * self.bandwidth_gbps), self.bandwidth_gbps)

    @property
    def exponentials_per_clock(self) -> float:
        """That an SM takes."""
        return EXPONENTIALS_PER_SM_CLOCK.get(self.gpu.compute_capability, 16.0)

    @property
    def written_gbps(self) -> float:
        """Rate of the memory where as much is written as read."""
        written = READ_WRITE_BANDWIDTH_FRACTION.get(self.gpu.compute_capability, 1.0)
        return self.bandwidth_gbps * (INLINE_ECC_BANDWIDTH_FRACTION if self.gpu.inline_ecc else written)

    @property
    def usable_cache_bytes(self) -> float:
        """What the last-level cache holds of data that any SM may read.

        An L2 in two partitions, as in the A100 and since then in the largest GPU of each generation, may hold a line in
        both (A100 whitepaper). The high rates of decoding end at 0.65 of its size on the A100, H100 and B200, and at
        its full size on the L40S.
        """
        partitioned = self.architecture in ("8.0", "9", "10")
        return self.cache_bytes * (0.65 if partitioned else 1.0)

    def get_tflops(self, dtype: str | None) -> float:
        """Peak rate of matrix products in `dtype`, dense; in the dtype that runs instead where it has no such units.

        Where it has none of fp64, that is a 64th of the vector rate in fp32.
        """
        runs_as = find_supported_dtype(dtype or "fp32", self.gpu)
        if runs_as in ARITHMETIC_DTYPES:
            return self.get_tflops(ARITHMETIC_DTYPES[runs_as])
        if not self.gpu.supports(runs_as) and runs_as in (unpacked := UNPACKED_BY_VENDOR.get(self.gpu.vendor, {})):
            return self.get_tflops(unpacked[runs_as])
        peak = self.gpu.peak_flops(runs_as) or self.gpu.vector_tflops["fp32"] * 1e12
        if dtype == "fp64" != runs_as:
            peak = self.gpu.vector_tflops["fp32"] * 1e12 / 64
        per_clock = self.matrix_flops_per_clock * RATE_OVER_16_BIT.get(runs_as, 1.0)
        return min(peak / 1e12 * self.clock_factor, per_clock * self.sms * self.clock_mhz / 1e6)

    @property
    def has_newer_matrix_units(self) -> bool:
        """Whether the matrix units are programmed otherwise than an A100's, which kernels made for it can't use."""
        return self.tensor_class in ("wgmma", "tcgen05")

    @functools.cached_property
    def on_mma(self) -> Hardware:
        """The GPU as such kernels see it: one of the A100's class, with the rate of its units for each SM and clock."""
        if not self.has_newer_matrix_units:
            return self
        return replace(
            self,
            slug=self.slug + MMA_SUFFIX,
            tensor_class="mma",
            architecture=self.architecture + MMA_SUFFIX,
            matrix_flops_per_clock=MMA_FLOPS_PER_SM_CLOCK,
        )

    @property
    def mma_rate_fraction(self) -> float:
        """The most that such kernels reach of the GPU's rate in 16 bit: all of it where the units aren't later ones."""
        return self.on_mma.get_tflops("bf16") / self.get_tflops("bf16")

    def has_matrix_units_like(self, other: Hardware) -> bool:
        """Return whether one SM's matrix units are about as fast as another GPU's, so that the same resources limit.

        An H20's are four times slower than an H100's. There, neither the operands nor the power limit a large product,
        and a small tile takes as long as a large one on an H100.
        """
        mine, its = (one.get_tflops("fp16") / one.sms / one.clock_mhz for one in (self, other))
        return max(mine, its) < MAX_MATRIX_RATE_RATIO * min(mine, its)

    def computes_like(self, other: Hardware) -> bool:
        """Return whether another GPU has the same SMs, as many and as fast, and as much power: H20s of two memories."""
        mine, its = (
            (one.architecture, one.sms, one.clock_mhz, one.gpu.tdp_w, one.get_tflops("fp16")) for one in (self, other)
        )
        return mine == its

    @property
    def vector_tflops(self) -> float:
        """Peak fp32 rate outside of the matrix units."""
        return self.gpu.vector_tflops["fp32"] * self.clock_factor

    def bound_time_ratio(self, sibling: Hardware, rate: Floats, exponentials: Bools | bool) -> tuple[Floats, Floats]:
        """Least and most of a sibling's time that a kernel may take here: by the resource in which the two differ most.

        Args:
            sibling: GPU that runs the same kernels.
            rate: This GPU's GEMM rate over the sibling's, (rows,).
            exponentials: Whether exponentials take a considerable part of the kernels' time.
        """
        gains = (
            1.0,
            self.gpu.tdp_w / sibling.gpu.tdp_w,
            self.bandwidth_gbps / sibling.bandwidth_gbps,
            self.written_gbps / sibling.written_gbps,
            self.cache_gbps / sibling.cache_gbps,
            self.vector_tflops / sibling.vector_tflops,
        )
        faster = np.where(exponentials, self.exponentials_per_clock / sibling.exponentials_per_clock, 1.0)
        most, least = np.maximum(rate, faster), np.minimum(rate, faster)
        return 1 / np.maximum(most, max(gains)), 1 / np.minimum(least, min(gains))

    def get_copy_gbps(self, kind: str | None) -> float:
        """Rate of a copy of a kind ('HtoD', 'DtoH', 'PtoP', 'DtoD'; None counts as the last)."""
        if kind in ("HtoD", "DtoH"):
            return self.gpu.pcie_gbps
        if kind == "PtoP":
            return self.gpu.link_gbps or self.gpu.pcie_gbps
        return self.written_gbps


@functools.cache
def derive_hardware(gpu: Gpu) -> Hardware:
    """The law's view of a GPU."""
    capability = gpu.compute_capability
    boost = GEFORCE_CLOCK_FACTOR if gpu.is_geforce else 1.0
    node = next((p for prefix, p in _PROCESS_POWER.items() if capability.startswith(prefix)), 0.28)
    return Hardware(
        slug=gpu.slug,
        tensor_class=_classify_matrix_units(capability),
        architecture=capability.split(".")[0] if capability.startswith(("10.", "9.")) else capability,
        memory="hbm" if "HBM" in gpu.memory_kind else "gddr",
        sms=float(gpu.sms),
        clock_mhz=gpu.boost_clock_mhz * boost,
        clock_factor=boost,
        bandwidth_gbps=gpu.bandwidth_gbps * DELIVERED_BANDWIDTH_FRACTION.get(capability, 1.0),
        cache_bytes=float(gpu.last_level_cache_bytes),
        watts_per_tflops=gpu.tdp_w / gpu.vector_tflops["fp32"] / boost / node,
        gpu=gpu,
    )


def _classify_matrix_units(capability: str) -> str:
    if capability.startswith("gfx"):
        return "mfma"
    if not capability[0].isdigit():
        return "xmx"
    major = int(capability.split(".")[0] or 0)
    if major < 7:
        return "none"
    return {9: "wgmma", 10: "tcgen05", 11: "tcgen05"}.get(major, "mma")
