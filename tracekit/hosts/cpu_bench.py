"""Measure this machine's CPU, and write it as a device file: what products reach, and what the memory does.

The law of ops knows fractions of a peak. So the peak of a file is the measured rate over that fraction, whatever the
datasheet says; the clock is that with which a softmax in the cache takes what it takes.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predictors.cpu_files import UNITS
from predictors.laws.cpu import AMX_FRACTION, MEMORY_FRACTION, PRODUCT_FRACTION, REFERENCE_CLOCK_MHZ
from tracekit.hosts.bench import import_torch

SIDE, COPIED_BYTES, ROUNDS = 768, 128 * 2**20, 40
SOFTMAX_ROWS, SOFTMAX_COLS = 468, 64
SOFTMAX_US = 23.8
"""Of so many rows on a core of the reference clock, an EPYC 9R14's."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CPU_INFO = Path("/proc/cpuinfo")
DEFAULT_L2_BYTES, DEFAULT_L3_BYTES = 2**20, 32 * 2**20


@dataclass(frozen=True, slots=True)
class CpuBench:
    """What was measured of this machine's CPU.

    Attributes:
        name: As the system calls it.
        cores: Threads that were used.
        units: One of ``predictors.cpu_files.UNITS``.
        product_gflops: Rate of a large product by format.
        memory_gbps: Of a copy that no cache holds, bytes read and written.
        clock_mhz: By the law's reckoning.
        l2_bytes: Of a core.
        l3_bytes: Of the last cache.
        l3_cores: Cores that share it.
        memory_bytes: Of the machine.
    """

    name: str
    cores: int
    units: str
    product_gflops: dict[str, float]
    memory_gbps: float
    clock_mhz: float
    l2_bytes: int
    l3_bytes: int
    l3_cores: int
    memory_bytes: int

    def to_toml(self) -> str:
        """Return the device file."""
        fractions = PRODUCT_FRACTION | (dict.fromkeys(("bf16", "fp16"), AMX_FRACTION) if self.units == "amx" else {})
        peaks = {dtype: rate / fractions[dtype] / 1e3 for dtype, rate in self.product_gflops.items()}
        peaks = {"fp64": peaks["fp32"] / 2, **peaks}
        lines = [f"{dtype} = {peak:.4g}" for dtype, peak in peaks.items()]
        return f"""name = "{self.name}"
vendor = "cpu"
architecture = "measured"
units = "{self.units}"
year = {time.gmtime().tm_year}

[compute]
cores = {self.cores}
clock_mhz = {self.clock_mhz:.0f}
tdp_w = {max(WATTS_PER_CORE * self.cores, 1.0):.0f}

[memory]
kind = "measured"
channels = 1
size_gb = {self.memory_bytes / 2**30:.1f}
bandwidth_gbps = {self.memory_gbps / MEMORY_FRACTION:.1f}
l2_mib_per_core = {self.l2_bytes / 2**20:.3g}
l3_mib = {self.l3_bytes / 2**20:.4g}
l3_cores = {self.l3_cores}

[tflops]
{chr(10).join(lines)}

[sources]
datasheet = "tracekit calibrate --cpu, on this machine; its power is a usual one"
"""


WATTS_PER_CORE = 4.0
"""Of servers' CPUs: 3.5 to 7 W."""


def bench_cpu() -> CpuBench:
    """Measure this machine's CPU in some seconds, with as many threads as PyTorch uses.

    Other processes disturb it: of each measurement the least time counts.

    Raises:
        CalibrationError: PyTorch isn't installed.
    """
    torch = import_torch()
    cores = torch.get_num_threads()
    formats = {"fp32": torch.float32} | ({"bf16": torch.bfloat16} if _has_bf16(torch) else {})
    with torch.inference_mode():
        rates = {name: _measure_product(torch, dtype, cores) for name, dtype in formats.items()}
        copy_us = _time_us(_build_copy(torch), cores, ROUNDS // 4)
        try:
            torch.set_num_threads(1)
            values = torch.randn(SOFTMAX_ROWS, SOFTMAX_COLS)
            softmax_us = _time_us(lambda: torch.softmax(values, -1), 1, 50 * ROUNDS)
        finally:
            torch.set_num_threads(cores)
    l2, l3, shared = _read_caches()
    return CpuBench(
        name=_read_name(),
        cores=cores,
        units=_find_units(torch),
        product_gflops=rates,
        memory_gbps=2 * COPIED_BYTES / copy_us / 1e3,
        clock_mhz=min(max(REFERENCE_CLOCK_MHZ * SOFTMAX_US / softmax_us, 500.0), 6000.0),
        l2_bytes=l2,
        l3_bytes=l3,
        l3_cores=max(min(shared, cores), 1),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 16 * 2**30,
    )


def _measure_product(torch: Any, dtype: Any, cores: int) -> float:
    """Return the rate of a product in GFLOP/s, less what its sides cost by the law."""
    a, b = (torch.randn(SIDE, SIDE, dtype=torch.float32).to(dtype) for _ in range(2))
    return 2 * SIDE**3 * (1 + 33 / SIDE) / _time_us(lambda: torch.nn.functional.linear(a, b), cores, ROUNDS) / 1e3


def _build_copy(torch: Any) -> Callable[[], Any]:
    source = torch.ones(COPIED_BYTES // 4)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def _time_us(run: Callable[[], Any], cores: int, rounds: int) -> float:
    """Return the least time of some runs; of one thread the median of its CPU time, which others leave as it is."""
    clock = time.thread_time_ns if cores == 1 else time.perf_counter_ns
    times = []
    for _ in range(3 + rounds):
        begin = clock()
        run()
        times.append(clock() - begin)
    return (statistics.median(times[3:]) if cores == 1 else min(times[3:])) / 1e3


def _find_units(torch: Any) -> str:
    """Return what computes products: by what PyTorch says of the CPU."""
    capability = torch.backends.cpu.get_cpu_capability()
    if _says(torch, "_is_amx_tile_supported"):
        return "amx"
    if capability == "AVX512":
        return "avx512-bf16" if _says(torch, "_is_avx512_bf16_supported") else "avx512"
    known = {"AVX2": "avx2", "SVE256": "sve", "SVE": "sve"}
    found = known.get(capability, "neon" if platform.machine() in ("aarch64", "arm64") else "avx2")
    assert found in UNITS
    return found


def _has_bf16(torch: Any) -> bool:
    return _find_units(torch) in ("amx", "avx512-bf16", "sve")


def _says(torch: Any, name: str) -> bool:
    return bool(getattr(torch.cpu, name, bool)())


def _read_caches() -> tuple[int, int, int]:
    """Return the bytes of a core's L2 and of the last cache, and how many cores share that."""
    found: dict[int, tuple[int, int]] = {}
    for folder in CACHES.glob("index*") if CACHES.is_dir() else ():
        try:
            level, size, cores = (
                (folder / name).read_text(encoding="ascii").strip() for name in ("level", "size", "shared_cpu_list")
            )
            count = sum(int(part.split("-")[-1]) - int(part.split("-")[0]) + 1 for part in cores.split(","))
            found[int(level)] = int(size.removesuffix("K")) * 1024, count
        except (OSError, ValueError):
            continue
    l2 = found.get(2, (DEFAULT_L2_BYTES, 1))
    l3 = found.get(3, (DEFAULT_L3_BYTES, os.cpu_count() or 1))
    return l2[0] // max(l2[1], 1), *l3


def _read_name() -> str:
    lines = CPU_INFO.read_text(encoding="utf-8").splitlines() if CPU_INFO.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    return next(named, platform.processor() or platform.machine()).replace('"', "'")
