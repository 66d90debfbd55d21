"""Order GPUs by their datasheets: which ones can't take longer than another for the same work by the same kernel.

Between architectures the order holds for PyTorch's own kernels and for libraries' GEMMs and attention.
``ENGINE_LAWS`` are other kernels on each architecture, so they are ordered within one architecture only. Figures of a
GPU that a user describes are compared with those of all known ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path

import msgspec

from predictors.gpu import DTYPES, Gpu
from predictors.gpu_names import list_gpus, load_gpu
from predictors.hardware import derive_hardware

ENGINE_LAWS = ("prefill", "decode", "latent", "encoder", "gemm fp8_block")
"""Laws of serving engines' kernels, which are written anew for each architecture. A B200 beats an H100 in every figure,
and took 3 % longer and more for 18, 28, 35 and 31 % of the same kernels of one engine (aiconfigurator at 095f58a5); of
the other laws' kernels it did for 1 to 17 %, mostly by little."""
RATED_DTYPES = tuple(dtype for dtype in DTYPES if dtype != "fp64")
"""Formats whose peaks are compared: export limits cut that of fp64, which these kernels don't use."""
ORDER_FILE = "gpu_order.json"

Limits = Mapping[str, Mapping[str, Sequence[float]]]
"""Slug -> kind (``KernelsByLaw.kind``) -> least and largest time in microseconds at which the model contradicts it."""
ANY_TIME = (0.0, math.inf)
NEVER = (math.inf, -math.inf)


DELIVERED_FIGURES = (
    "clock_mhz",
    "vector_tflops",
    "bandwidth_gbps",
    "written_gbps",
    "cache_gbps",
    "exponentials_per_clock",
)
"""Figures of ``Hardware`` that are compared besides the printed ones. A GeForce runs above its printed clock and memory
with inline ECC below its printed rate, so of two such GPUs the datasheets alone don't say which is better."""


@cache
def list_figures(gpu: Gpu) -> tuple[float, ...]:
    """Return the figures of a GPU, as printed and as delivered, that more of makes no kernel slower."""
    peaks = (gpu.peak_flops(dtype) or 0.0 for dtype in RATED_DTYPES)
    printed = gpu.sms, gpu.boost_clock_mhz, gpu.vector_clock_mhz, gpu.tdp_w, gpu.l2_bytes, gpu.last_level_cache_bytes
    hardware = derive_hardware(gpu)
    return (*printed, gpu.bandwidth_gbps, *peaks, *(getattr(hardware, name) for name in DELIVERED_FIGURES))


def is_no_worse(one: Gpu, other: Gpu) -> bool:
    """Return whether a GPU has at least another's figures; only GPUs of one vendor are compared.

    Libraries and launch times differ between vendors: an MI300X exceeds an H100 in every resource and ran the attention
    of the same jobs three times slower.
    """
    return one.vendor == other.vendor and all(
        mine >= its for mine, its in zip(list_figures(one), list_figures(other), strict=True)
    )


@dataclass(frozen=True)
class GpuOrder:
    """The order of the GPUs of the data base, and where fitted predictions break it.

    It is worked out once for some weights (``predictors.training.order``). Without it nothing is ordered.

    Attributes:
        better: Slug -> GPUs that are no worse (``is_no_worse``).
        delivering: Slug -> GPUs that deliver no less (``transfer.dominates``).
        architectures: Slug -> ``Hardware.architecture``.
        measured: Law -> GPUs that it was measured on well, or whose twin it was.
        raised_by: Slug -> GPUs that are no worse and that the model may predict slower: for which laws and times.
        capped_by: Slug -> measured GPUs that it is no worse than and that the model may predict faster, likewise.
    """

    better: Mapping[str, Sequence[str]] = field(default_factory=dict)
    delivering: Mapping[str, Sequence[str]] = field(default_factory=dict)
    architectures: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, Sequence[str]] = field(default_factory=dict)
    raised_by: Mapping[str, Limits] = field(default_factory=dict)
    capped_by: Mapping[str, Limits] = field(default_factory=dict)

    def list_better(self, gpu: Gpu) -> Sequence[str]:
        """Return the other GPUs of the data base that are no worse than a GPU."""
        if gpu.slug in self.better:
            return self.better[gpu.slug]
        return [slug for slug in self.better if is_no_worse(load_gpu(slug), gpu)]

    def list_worse(self, gpu: Gpu) -> Sequence[str]:
        """Return the other GPUs of the data base that a GPU is no worse than."""
        if gpu.slug in self.better:
            return [slug for slug, better in self.better.items() if gpu.slug in better]
        return [slug for slug in self.better if is_no_worse(gpu, load_gpu(slug))]

    def list_raising(self, gpu: Gpu, kinds: Sequence[str | None]) -> Limits:
        """Return the GPUs whose times a GPU takes at least: of one that isn't in the data base, all no worse ones."""
        if gpu.slug in self.better:
            return self.raised_by.get(gpu.slug, {})
        return dict.fromkeys(self.list_better(gpu), _allow_any_time(kinds))

    def list_capping(self, gpu: Gpu, kinds: Sequence[str | None]) -> Limits:
        """Return the measured GPUs whose times a GPU takes at most."""
        if gpu.slug in self.better:
            return self.capped_by.get(gpu.slug, {})
        measured = set().union(*self.measured.values())
        return dict.fromkeys(measured.intersection(self.list_worse(gpu)), _allow_any_time(kinds))


def _allow_any_time(kinds: Sequence[str | None]) -> dict[str, Sequence[float]]:
    return {kind: ANY_TIME for kind in kinds if kind}


def load_gpu_order(folder: Path) -> GpuOrder:
    """Return the order that was worked out for the weights of a folder; an empty one where there is none."""
    path = folder / ORDER_FILE
    return GpuOrder(**msgspec.json.decode(path.read_bytes())) if path.exists() else GpuOrder()


def save_gpu_order(order: GpuOrder, folder: Path) -> None:
    """Write the order into a folder of weights."""
    text = {part.name: getattr(order, part.name) for part in fields(order)}
    lines = (
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(
            f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in sorted(table.items())
        )
        + "\n}"
        for name, table in text.items()
    )
    (folder / ORDER_FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def compare_known_gpus() -> dict[str, list[str]]:
    """Return the GPUs of the data base that are no worse than each."""
    gpus = [load_gpu(slug) for slug in list_gpus()]
    return {gpu.slug: [one.slug for one in gpus if one.slug != gpu.slug and is_no_worse(one, gpu)] for gpu in gpus}


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
