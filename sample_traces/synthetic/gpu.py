"""The GPU that the synthetic samples pretend to run on: its facts and how long a kernel takes on it."""

from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

SMS = 108
WARPS_PER_SM = 64
REGISTERS_PER_SM = 65536
SHARED_BYTES_PER_SM = 167936
STATIC_SHARED_BYTES = 49152

DEVICE = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 84990623744,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 32 * WARPS_PER_SM,
    "regsPerBlock": REGISTERS_PER_SM,
    "warpSize": 32,
    "sharedMemPerBlock": STATIC_SHARED_BYTES,
    "numSms": SMS,
    "regsPerMultiprocessor": REGISTERS_PER_SM,
    "sharedMemPerBlockOptin": 166912,
    "sharedMemPerMultiprocessor": SHARED_BYTES_PER_SM,
}

# The shares that good kernels reach of the datasheet's peaks: 312 TFLOP/s in bf16, 2039 GB/s.
FLOPS_PER_US = 0.6 * 312e6
BYTES_PER_US = 0.8 * 2039e3
PAGEABLE_COPY_BYTES_PER_US = 12e3


@dataclass(frozen=True)
class Kernel:
    """A kernel's launch configuration and the work it does."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_bytes: int
    flops: float
    moved_bytes: float


def kernel_ns(kernel: Kernel, chance: Random) -> int:
    """Return a kernel's duration: a fixed part, then whichever of arithmetic and memory takes longer."""
    work_us = max(kernel.flops / FLOPS_PER_US, kernel.moved_bytes / BYTES_PER_US)
    return round(1000 * (chance.uniform(2.0, 3.0) + work_us * chance.uniform(0.97, 1.03)))


def copy_ns(copied_bytes: int, chance: Random) -> int:
    """Return the duration of a copy to pageable host memory."""
    return round(1000 * (chance.uniform(1.2, 1.6) + copied_bytes / PAGEABLE_COPY_BYTES_PER_US))


def launch_args(kernel: Kernel) -> dict[str, Any]:
    """Return what the profiler notes of a launch configuration."""
    blocks = prod(kernel.grid)
    warps = prod(kernel.block) / 32
    return {
        "registers per thread": kernel.registers,
        "shared memory": kernel.shared_bytes,
        "blocks per SM": round(blocks / SMS, 6),
        "warps per SM": round(blocks * warps / SMS, 6),
        "grid": list(kernel.grid),
        "block": list(kernel.block),
        "est. achieved occupancy %": _occupancy_percent(kernel, blocks, warps),
    }


def _occupancy_percent(kernel: Kernel, blocks: int, warps: float) -> int:
    """Estimate as the profiler does, which takes a block beyond the static shared memory as not fitting."""
    if kernel.shared_bytes > STATIC_SHARED_BYTES:
        return 0
    registers_per_block = kernel.registers * 32 * warps
    shared_limit = SHARED_BYTES_PER_SM // max(kernel.shared_bytes, 1)
    resident = min(32, WARPS_PER_SM // warps, REGISTERS_PER_SM // registers_per_block, shared_limit)
    return int(100 * min(resident, blocks / SMS) * warps / WARPS_PER_SM)
