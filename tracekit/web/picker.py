"""The GPUs as the form offers them: the usual ones first, then all by family."""

from collections.abc import Collection
from dataclasses import dataclass

from predictors import Gpu, list_gpus, load_gpu

USUAL_GPUS = ("h100-sxm", "h200-sxm", "b200", "a100-sxm-80gb", "l40s", "mi300x")
"""What people ask about most, most common first."""

VENDOR_NAMES = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}


@dataclass(frozen=True, slots=True)
class GpuFamily:
    """GPUs of one architecture.

    Attributes:
        name: Vendor and architecture.
        gpus: Its GPUs, those with most memory first.
    """

    name: str
    gpus: tuple[Gpu, ...]


def list_usual_gpus(chosen: Collection[str]) -> list[Gpu]:
    """Return the GPUs that the form shows first: the usual ones, and others that are chosen already."""
    others = sorted(set(chosen) & set(list_gpus()) - set(USUAL_GPUS))
    return [load_gpu(slug) for slug in (*USUAL_GPUS, *others)]


def list_families(shown: Collection[Gpu]) -> list[GpuFamily]:
    """Return the GPUs that aren't shown yet by architecture, of each vendor the newest first."""
    families: dict[tuple[str, str], list[Gpu]] = {}
    for gpu in map(load_gpu, list_gpus()):
        if gpu not in shown:
            families.setdefault((gpu.vendor, gpu.architecture), []).append(gpu)
    order = sorted(
        families, key=lambda key: (list(VENDOR_NAMES).index(key[0]), -max(gpu.year for gpu in families[key]))
    )
    return [
        GpuFamily(
            f"{VENDOR_NAMES[vendor]} {architecture.title() if vendor == 'nvidia' else architecture.upper()}",
            tuple(sorted(families[vendor, architecture], key=lambda gpu: (-gpu.memory_bytes, gpu.slug))),
        )
        for vendor, architecture in order
    ]


def build_search_text(gpu: Gpu) -> str:
    """Build the text that the form's search matches."""
    return " ".join((gpu.slug, gpu.name, gpu.vendor, gpu.architecture, *gpu.aliases)).lower()
