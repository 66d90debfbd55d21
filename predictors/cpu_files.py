"""Read the files of CPUs: a CPU is a device like a GPU, with cores in place of SMs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from predictors.errors import InvalidGpuFileError
from predictors.gpu import CPU_VENDOR, Gpu

CPU_FILES = Path(__file__).with_name("cpus")
"""Those of the data base, named by their slugs."""
THREADS_PATTERN = re.compile(r"(?P<name>[^:]+):(?P<cores>[1-9]\d{0,3})")
"""A CPU of which a job has some cores only, such as 'epyc-9654:8'."""
KEYS: Mapping[str, Mapping[str, type]] = {
    "": dict(name=str, vendor=str, architecture=str, units=str, year=int, aliases=list),
    "compute": dict(cores=int, clock_mhz=float, tdp_w=float),
    "memory": dict(
        kind=str, channels=int, size_gb=float, bandwidth_gbps=float, l2_mib_per_core=float, l3_mib=float, l3_cores=int
    ),
    "tflops": dict(fp64=float, fp32=float, bf16=float, fp16=float, int8=float),
}
OPTIONAL_KEYS = frozenset({"aliases", "memory.size_gb", "tflops.bf16", "tflops.fp16", "tflops.int8"})
UNITS = ("avx2", "avx512", "avx512-bf16", "amx", "neon", "sve")
"""What computes matrix products: the widest units that PyTorch's libraries use."""
DEFAULT_SIZE_GB_PER_CHANNEL = 64.0
"""Of a machine whose memory nobody gives: one common module for each channel."""


@cache
def list_cpus() -> list[str]:
    """List the slugs of all known CPUs, sorted."""
    return sorted(path.stem for path in CPU_FILES.glob("*.toml"))


def split_cores(name: str) -> tuple[str, int | None]:
    """Split a name such as 'epyc-9654:8' into the CPU's and the cores that a job has; None for all."""
    found = THREADS_PATTERN.fullmatch(name.strip())
    return (found["name"], int(found["cores"])) if found else (name, None)


def build_cpu(slug: str, data: Mapping[str, Any], path: Path, cores: int | None = None) -> Gpu:
    """Build the device that a CPU's file describes, or some cores of it.

    Peaks, the L2 and the power are those of the cores that are used. An L3 is shared by ``l3_cores``; the memory's rate
    is the whole socket's, of which the law takes what so many cores can have.

    Raises:
        InvalidGpuFileError: It has fewer cores.
    """
    compute, memory = data["compute"], data["memory"]
    used = compute["cores"] if cores is None else cores
    if used > compute["cores"]:
        raise InvalidGpuFileError(path, f"{slug} has {compute['cores']} cores, fewer than {used}")
    fraction = used / compute["cores"]
    slices = math.ceil(used / memory["l3_cores"]), math.ceil(compute["cores"] / memory["l3_cores"])
    size_gb = memory.get("size_gb", DEFAULT_SIZE_GB_PER_CHANNEL * memory["channels"])
    cited = data.get("sources", {})
    keys = [f"{section}.{key}" for section in KEYS if section for key in data[section] if key != "kind"]
    return Gpu(
        slug=slug if cores is None else f"{slug}:{cores}",
        name=data["name"] if cores is None else f"{data['name']}, {cores} cores",
        vendor=CPU_VENDOR,
        architecture=data["architecture"],
        compute_capability=data["units"],
        year=data["year"],
        aliases=tuple(data.get("aliases", ())),
        sms=used,
        boost_clock_mhz=compute["clock_mhz"],
        vector_clock_mhz=compute["clock_mhz"],
        warp_size=1,
        max_threads_per_sm=1,
        registers_per_sm=32,
        shared_memory_per_sm_bytes=round(memory["l2_mib_per_core"] * 2**20),
        tdp_w=compute["tdp_w"] * fraction,
        memory_kind=memory["kind"],
        memory_bytes=round(size_gb * 2**30),
        bandwidth_gbps=memory["bandwidth_gbps"],
        inline_ecc=False,
        l2_bytes=round(memory["l2_mib_per_core"] * used * 2**20),
        last_level_cache_bytes=round(memory["l3_mib"] * slices[0] / slices[1] * 2**20),
        vector_tflops=MappingProxyType({dtype: rate * fraction for dtype, rate in data["tflops"].items()}),
        tensor_tflops=MappingProxyType({}),
        pcie_gen=5,
        pcie_lanes=16,
        link=None,
        link_gbps=None,
        link_gpus=None,
        half_rate_accumulate=False,
        sources=MappingProxyType({key: next(iter(cited.values())) for key in keys} if cited else {}),
        peak_notes=MappingProxyType({}),
    )
