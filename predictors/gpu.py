"""Describe a GPU by its datasheet facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8")
"""Dtypes that a GPU file can give a rate for."""

PCIE_LANE_GBPS = {3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Bandwidth of one PCI Express lane by generation, in one direction after line coding, in 1e9 bytes/s."""

VENDORS = {"nvidia": r"\d+\.\d", "amd": r"gfx[0-9a-f]{3,4}", "intel": r"(?:acm|bmg|pvc)[a-z0-9-]*"}
"""Vendors, each with the pattern of its compute capabilities."""

CPU_VENDOR = "cpu"
"""What stands for the vendor of a CPU, which is no GPU vendor's."""
_BASE_FORMATS = {"fp8_block": "fp8", "mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4", "3xtf32": "tf32"}
_BLOCK_SCALED_FORMATS = ("mxfp8", "mxfp4", "nvfp4")
"""Formats whose scales the matrix units apply themselves, as only those do that have FP4."""
_BASE_GEMMS = {"3xtf32": 3}
"""Products of the format that runs for each of a format put together from it (CUTLASS, ``OpMultiplyAddFastF32``)."""
GEFORCE_WORDS = ("GeForce", "TITAN")
"""Words of the names of boards made for games."""
CONSUMER_WORDS = (*GEFORCE_WORDS, "Radeon RX", "Radeon 8060S", "Arc ")
"""Words of the names of boards for games and desktops."""
WORKSTATION_WORDS = ("RTX", "Quadro", "Radeon", "Jetson", "GB10")
"""Words of the names of boards for workstations, and of small computers, beside those of servers."""
LAPTOP_WORD = "laptop"
"""The word of a slug that tells a laptop's GPU."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """GPU as its vendor describes it: facts only, nothing fitted.

    For an AMD MI250 or MI250X it is one of the two dies, as a profiler sees it.

    Attributes:
        slug: Canonical name, such as 'h100-sxm'.
        name: Display name.
        vendor: 'nvidia', 'amd' or 'intel'; of a CPU 'cpu'.
        architecture: Generation, such as 'hopper' or 'cdna3'.
        compute_capability: Such as '9.0'; on AMD and Intel the compiler's target, such as 'gfx942' or 'bmg-g21'.
        year: Year of the launch.
        aliases: Other spellings: driver names, board numbers, names in other tools.
        sms: Streaming multiprocessors; on AMD compute units, or the work-group processors that HIP counts from RDNA on;
            on Intel Xe cores; of a CPU its cores.
        boost_clock_mhz: Clock of the printed tensor peaks, and of the vector peaks unless ``vector_clock_mhz`` differs.
        vector_clock_mhz: Clock of the printed vector and FP64 peaks.
        warp_size: Threads per warp.
        max_threads_per_sm: Resident threads per SM.
        registers_per_sm: 32-bit registers per SM.
        shared_memory_per_sm_bytes: Most shared memory that the blocks of one SM can use (LDS on AMD).
        tdp_w: Board power in watts.
        memory_kind: Such as 'HBM3'.
        memory_bytes: Printed size in GB taken as GiB, which is what vendors mean.
        bandwidth_gbps: Memory bandwidth in 1e9 bytes/s.
        inline_ecc: Whether the memory stores its own check bits, as shipped data-centre boards with GDDR do.
        l2_bytes: Total size of the L2.
        last_level_cache_bytes: Size of the last cache before the memory; that of the L2 where there is no other.
        vector_tflops: Dense peak by dtype on the CUDA cores or VALUs, in 1e12 FLOP/s.
        tensor_tflops: Dense peak by dtype on the tensor cores, accumulating in FP32, in 1e12 FLOP/s.
        pcie_gen: PCI Express generation.
        pcie_lanes: PCI Express lanes.
        link: 'nvlink1' to 'nvlink5', 'infinity-fabric', or None.
        link_gbps: Bandwidth of all links of the GPU together, in one direction, in 1e9 bytes/s.
        link_gpus: Most GPUs that a bridge joins; None where the links reach the whole machine.
        half_rate_accumulate: Whether the tensor cores accumulate in FP32 at half their rate, as on GeForce boards.
        sources: 'section.key' of the file -> citation of that number.
        peak_notes: 'section.dtype' -> reason why a printed peak is not SMs x clock x rate.
    """

    slug: str
    name: str
    vendor: str
    architecture: str
    compute_capability: str
    year: int
    aliases: tuple[str, ...]
    sms: int
    boost_clock_mhz: float
    vector_clock_mhz: float
    warp_size: int
    max_threads_per_sm: int
    registers_per_sm: int
    shared_memory_per_sm_bytes: int
    tdp_w: float
    memory_kind: str
    memory_bytes: int
    bandwidth_gbps: float
    inline_ecc: bool
    l2_bytes: int
    last_level_cache_bytes: int
    vector_tflops: Mapping[str, float] = field(hash=False)
    tensor_tflops: Mapping[str, float] = field(hash=False)
    pcie_gen: int
    pcie_lanes: int
    link: str | None
    link_gbps: float | None
    link_gpus: int | None
    half_rate_accumulate: bool
    sources: Mapping[str, str] = field(hash=False, repr=False)
    peak_notes: Mapping[str, str] = field(hash=False, repr=False)

    def with_clock(self, fraction: float) -> Gpu:
        """Return it at a fraction of its clock; the memory keeps its own."""
        return replace(
            self,
            boost_clock_mhz=fraction * self.boost_clock_mhz,
            vector_clock_mhz=fraction * self.vector_clock_mhz,
            vector_tflops={dtype: fraction * peak for dtype, peak in self.vector_tflops.items()},
            tensor_tflops={dtype: fraction * peak for dtype, peak in self.tensor_tflops.items()},
        )

    @property
    def is_cpu(self) -> bool:
        """Whether it is a CPU: its cores stand in place of SMs, and its kernels are PyTorch's ops."""
        return self.vendor == CPU_VENDOR

    @property
    def is_laptop(self) -> bool:
        """Whether its maker sets the power limit, and with it the clock: the file has those of the largest."""
        return LAPTOP_WORD in self.slug.split("-")

    @property
    def is_geforce(self) -> bool:
        """Whether it raises its clock beyond the printed boost clock, as boards made for games do."""
        return any(word in self.name for word in GEFORCE_WORDS)

    @property
    def is_consumer(self) -> bool:
        """Whether it is sold for games and desktops: GeForce, TITAN, Radeon RX, Arc."""
        return any(word in self.name for word in CONSUMER_WORDS)

    @property
    def is_datacenter(self) -> bool:
        """Whether it is sold for servers: neither for games nor for workstations nor as a board with its CPU."""
        return not self.is_consumer and ("Server" in self.name or not any(w in self.name for w in WORKSTATION_WORDS))

    @property
    def pcie_gbps(self) -> float:
        """PCI Express bandwidth in one direction after line coding, in 1e9 bytes/s."""
        return PCIE_LANE_GBPS[self.pcie_gen] * self.pcie_lanes

    def peak_flops(self, dtype: str) -> float | None:
        """Return the best dense peak for a dtype.

        Args:
            dtype: One of ``DTYPES``, 'fp8_block', 'mxfp8', 'mxfp4', 'nvfp4' or '3xtf32', which computes one FP32 GEMM
                by three GEMMs in TF32. 'fp32' means real FP32; TF32 is its own dtype. The scales of 'nvfp4' are fp8,
                which only NVIDIA's units read.

        Returns:
            FLOP/s (OP/s for 'int8'), or None where the GPU has no units for it.
        """
        if dtype in _BLOCK_SCALED_FORMATS and "fp4" not in self.tensor_tflops:
            return None
        if dtype == "nvfp4" and self.vendor != "nvidia":
            return None
        products, dtype = _BASE_GEMMS.get(dtype, 1), _BASE_FORMATS.get(dtype, dtype)
        rates = [table[dtype] for table in (self.vector_tflops, self.tensor_tflops) if dtype in table]
        return max(rates) * 1e12 / products if rates else None

    def supports(self, dtype: str) -> bool:
        """Return whether the GPU has units for a dtype (see ``peak_flops``)."""
        return self.peak_flops(dtype) is not None
