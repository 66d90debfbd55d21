"""Order GPUs by their datasheets, and predicted times by that order: no GPU is slower than one it equals or beats.

The order speaks of the same work by the same kernel. Between architectures it holds for PyTorch's own kernels and for
libraries' products and attention; ``ENGINE_LAWS`` are other kernels on each architecture, so they are ordered within
one architecture only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from predictors.arrays import Bools, Floats
from predictors.gpu import DTYPES, Gpu
from predictors.gpu_file import GPU_FILES
from predictors.gpu_names import list_gpus
from predictors.hardware import get_architecture

ENGINE_LAWS = ("prefill", "decode", "encoder", "gemm fp8_block")
"""Laws of serving engines' kernels, which are written anew for each architecture. A B200 beats an H100 in every figure,
and took 3 % longer and more for 18, 28, 35 and 31 % of the same kernels of one engine (aiconfigurator at 095f58a5); of
the other laws' kernels it did for 1 to 17 %, mostly by little."""
RATED_DTYPES = tuple(dtype for dtype in DTYPES if dtype != "fp64")
"""Formats whose peaks are compared: export limits cut that of fp64, which these kernels don't use."""

_NUMBER = re.compile(r"^(\w+) = ([\d.]+)", re.MULTILINE)
_TEXT = re.compile(r'^(\w+) = "([^"]*)"', re.MULTILINE)


def list_figures(gpu: Gpu) -> tuple[float, ...]:
    """Return the figures of a datasheet that more of makes no kernel slower."""
    peaks = (round((gpu.peak_flops(dtype) or 0.0) / 1e12, 6) for dtype in RATED_DTYPES)
    clocks = gpu.boost_clock_mhz, gpu.vector_clock_mhz
    caches = gpu.l2_bytes / 2**20, gpu.last_level_cache_bytes / 2**20
    return (gpu.sms, *clocks, gpu.tdp_w, gpu.bandwidth_gbps, *caches, *peaks)


def is_no_worse(one: Gpu, other: Gpu) -> bool:
    """Return whether a GPU has at least another's figures; only GPUs of one vendor are compared.

    Libraries and launch times differ between vendors: an MI300X exceeds an H100 in every resource and ran the attention
    of the same jobs three times slower.
    """
    return one.vendor == other.vendor and all(
        mine >= its for mine, its in zip(list_figures(one), list_figures(other), strict=True)
    )


def list_better(gpu: Gpu) -> list[str]:
    """Return the slugs of the other GPUs of the data base that are no worse than a GPU."""
    known = _load_figures()[gpu.vendor]
    better = np.flatnonzero((known.figures >= np.array(list_figures(gpu))).all(axis=1)).tolist()
    return [known.slugs[i] for i in better if known.slugs[i] != gpu.slug]


def list_worse_siblings(gpu: Gpu, architecture: str) -> list[str]:
    """Return the slugs of the other GPUs of an architecture (``Hardware.architecture``) that a GPU is no worse than."""
    known = _load_figures()[gpu.vendor]
    worse = np.flatnonzero((known.figures <= np.array(list_figures(gpu))).all(axis=1)).tolist()
    return [known.slugs[i] for i in worse if known.architectures[i] == architecture and known.slugs[i] != gpu.slug]


def list_alike(gpu: Gpu, sm_difference: float) -> list[str]:
    """Return the slugs of the other GPUs of a GPU's architecture whose SM counts differ by less than a fraction."""
    known = _load_figures()[gpu.vendor]
    near = np.flatnonzero(np.abs(gpu.sms / known.figures[:, 0] - 1) < sm_difference).tolist()
    architecture = get_architecture(gpu.compute_capability)
    return [known.slugs[i] for i in near if known.architectures[i] == architecture and known.slugs[i] != gpu.slug]


def list_architectures(slugs: Sequence[str], vendor: str) -> list[str]:
    """Return the architectures of some GPUs of the data base."""
    known = _load_figures()[vendor]
    return [known.architectures[known.slugs.index(slug)] for slug in slugs]


def compare_known(slugs: Sequence[str], gpu: Gpu) -> tuple[Bools, Bools]:
    """Return which GPUs of the data base a GPU is no worse than, and which of them are no worse than each other one."""
    known = _load_figures()[gpu.vendor]
    figures = known.figures[np.array([known.slugs.index(slug) for slug in slugs], dtype=np.intp)]
    worse = (figures <= np.array(list_figures(gpu))).all(axis=1)
    return np.asarray(worse), np.asarray((figures[:, None] >= figures).all(axis=2))


@dataclass(frozen=True)
class _KnownFigures:
    """GPUs of one vendor in the data base: figures are (GPUs, figures)."""

    slugs: list[str]
    architectures: list[str]
    figures: Floats


@cache
def _load_figures() -> Mapping[str, _KnownFigures]:
    """Figures of the GPUs of the data base by vendor."""
    rows = {slug: _scan_figures((GPU_FILES / f"{slug}.toml").read_text(encoding="utf-8")) for slug in list_gpus()}
    found = {}
    for vendor in {vendor for vendor, _, _ in rows.values()}:
        slugs = [slug for slug, (its, _, _) in rows.items() if its == vendor]
        architectures = [get_architecture(rows[slug][1]) for slug in slugs]
        found[vendor] = _KnownFigures(slugs, architectures, np.array([rows[slug][2] for slug in slugs]))
    return found


def _scan_figures(text: str) -> tuple[str, str, tuple[float, ...]]:
    """Vendor, capability and ``list_figures`` of a file of the data base, in a tenth of the time of parsing it."""
    head, *parts = text.split("\n[")
    named = dict(_TEXT.findall(head))
    sections = {
        name: {key: float(value) for key, value in _NUMBER.findall(body)}
        for name, _, body in (part.partition("]") for part in parts)
    }
    compute, memory = sections["compute"], sections["memory"]
    vector, tensor = sections["vector_tflops"], sections.get("tensor_tflops", {})
    boost, l2 = compute["boost_clock_mhz"], memory["l2_mib"]
    peaks = (max(vector.get(dtype, 0.0), tensor.get(dtype, 0.0)) for dtype in RATED_DTYPES)
    return (
        named["vendor"],
        named["compute_capability"],
        (
            *(compute["sms"], boost, compute.get("vector_clock_mhz", boost), compute["tdp_w"]),
            *(memory["bandwidth_gbps"], l2, memory.get("last_level_cache_mib", l2), *peaks),
        ),
    )
