"""Tell which figures of a GPU that a user describes lie far from those of all known ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from predictors.gpu import DTYPES, Gpu
from predictors.gpu_names import list_gpus, load_gpu

MAX_KNOWN_RATIO = 4.0
"""How many times a figure may lie beyond the known GPUs' before predictions are doubtful: figures about double from one
generation to the next."""

_FIGURES: Mapping[str, Callable[[Gpu], float | None]] = {
    "SMs": lambda gpu: gpu.sms,
    "clock": lambda gpu: gpu.boost_clock_mhz,
    "vector clock": lambda gpu: gpu.vector_clock_mhz,
    "warp size": lambda gpu: gpu.warp_size,
    "threads of an SM": lambda gpu: gpu.max_threads_per_sm,
    "registers of an SM": lambda gpu: gpu.registers_per_sm,
    "shared memory": lambda gpu: gpu.shared_memory_per_sm_bytes,
    "memory bandwidth": lambda gpu: gpu.bandwidth_gbps,
    "L2": lambda gpu: gpu.l2_bytes,
    "last cache": lambda gpu: gpu.last_level_cache_bytes,
    "power": lambda gpu: gpu.tdp_w,
    "link bandwidth": lambda gpu: gpu.link_gbps,
    "PCI Express lanes": lambda gpu: gpu.pcie_lanes,
    **{f"{dtype} peak": partial(Gpu.peak_flops, dtype=dtype) for dtype in DTYPES},
}


def list_unlike_figures(gpu: Gpu) -> list[str]:
    """List the figures of a GPU that are far above or below those of all known GPUs."""
    if gpu.slug in list_gpus():
        return []
    return [
        name
        for name, (least, largest) in _measure_known_ranges().items()
        if (value := _FIGURES[name](gpu)) is not None
        and not least / MAX_KNOWN_RATIO <= value <= largest * MAX_KNOWN_RATIO
    ]


@cache
def _measure_known_ranges() -> Mapping[str, tuple[float, float]]:
    known = [load_gpu(slug) for slug in list_gpus()]
    values = {name: [value for gpu in known if (value := get(gpu)) is not None] for name, get in _FIGURES.items()}
    return {name: (min(found), max(found)) for name, found in values.items()}
