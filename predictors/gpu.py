"""What a GPU is: datasheet facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8")
"""Number formats a GPU file can give a rate for."""

PCIE_LANE_GBPS = {3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Of one PCI Express lane by generation, in one direction after line coding, in 1e9 bytes/s."""

VENDORS = {"nvidia": r"\d+\.\d", "amd": r"gfx[0-9a-f]{3,4}"}
"""Each vendor, and what its compute capabilities look like."""

_RUNS_AS = {"fp8_block": "fp8", "nvfp4": "fp4", "3xtf32": "tf32"}
_PRODUCTS = {"3xtf32": 3}
"""Products of the format that runs for each of a format put together from it (CUTLASS, ``OpMultiplyAddFastF32``)."""
GEFORCE = ("GeForce", "TITAN")
"""Words of the names of boards made for games."""
LAPTOP = "laptop"
"""The word of a slug that tells a laptop's GPU."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its vendor prints it: facts only, nothing fitted.

    For an AMD MI250 or MI250X it is one of the two dies, as a profiler sees it.

    Attributes:
        slug: canonical name, such as 'h100-sxm'.
        name: display name.
        vendor: 'nvidia' or 'amd'.
        architecture: generation, such as 'hopper' or 'cdna3'.
        compute_capability: such as '9.0'; on AMD the target, such as 'gfx942'.
        year: of the launch.
        aliases: other spellings: drivers' names, board numbers, other tools' names.
        sms: streaming multiprocessors, or compute units on AMD.
        boost_clock_mhz: clock at which the tensor peaks are printed; of the vector peaks too unless said.
        vector_clock_mhz: clock at which the vector and FP64 peaks are printed.
        warp_size: threads.
        max_threads_per_sm: resident threads.
        registers_per_sm: 32-bit registers.
        shared_memory_per_sm_bytes: most that blocks on one SM can share (LDS on AMD).
        tdp_w: board power.
        memory_kind: such as 'HBM3'.
        memory_bytes: the printed size in GB taken as GiB, which vendors mean by it.
        bandwidth_gbps: of the memory, in 1e9 bytes/s.
        inline_ecc: the memory holds its own check bits, as that of data-centre boards with GDDR does as shipped.
        l2_bytes: all L2 together.
        last_level_cache_bytes: of the last cache before the memory; the L2 where there is no other.
        vector_tflops: dense peak by dtype on the CUDA cores or VALUs, in 1e12 FLOP/s.
        tensor_tflops: dense peak by dtype on the tensor cores, accumulating in FP32, in 1e12 FLOP/s.
        pcie_gen: PCI Express generation.
        pcie_lanes: PCI Express lanes.
        link: 'nvlink1' to 'nvlink5', 'infinity-fabric', or None.
        link_gbps: of all links of the GPU together, in one direction, in 1e9 bytes/s.
        link_gpus: how many GPUs a bridge joins at most; None where the links reach the whole node.
        half_rate_accumulate: the tensor cores accumulate in FP32 at half their rate, as on GeForce boards.
        sources: where each number stands: 'section.key' of the file to a citation.
        peak_notes: why a printed peak is not SMs x clock x rate: 'section.dtype' to a reason.
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

    @property
    def is_laptop(self) -> bool:
        """Whether its maker sets the power limit, and with it the clock: the file has those of the largest."""
        return LAPTOP in self.slug.split("-")

    @property
    def is_geforce(self) -> bool:
        """Whether it raises its clock beyond the printed boost clock, as boards made for games do."""
        return any(word in self.name for word in GEFORCE)

    @property
    def pcie_gbps(self) -> float:
        """PCI Express bandwidth in one direction after line coding, in 1e9 bytes/s."""
        return PCIE_LANE_GBPS[self.pcie_gen] * self.pcie_lanes

    def peak_flops(self, dtype: str) -> float | None:
        """Best dense peak for a dtype.

        Args:
            dtype: one of `DTYPES`, 'fp8_block', 'nvfp4' or '3xtf32', which is three products in TF32 as good as one in
                FP32. 'fp32' means real FP32; TF32 is its own dtype.

        Returns:
            FLOP/s (OP/s for 'int8'), or None where the GPU has no units for it.
        """
        products, dtype = _PRODUCTS.get(dtype, 1), _RUNS_AS.get(dtype, dtype)
        rates = [table[dtype] for table in (self.vector_tflops, self.tensor_tflops) if dtype in table]
        return max(rates) * 1e12 / products if rates else None

    def supports(self, dtype: str) -> bool:
        """Whether the GPU has units for a dtype (see `peak_flops`)."""
        return self.peak_flops(dtype) is not None
