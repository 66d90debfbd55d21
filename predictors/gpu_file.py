"""Read GPU files: one TOML of datasheet facts per GPU, with a source for every number."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from predictors.errors import InvalidGpuFileError
from predictors.gpu import DTYPES, PCIE_LANE_GBPS, VENDORS, Gpu
from predictors.toml_file import read_toml

GPU_FILES = Path(__file__).with_name("gpus")
"""Those of the data base, named by their slugs."""

_KEY_TYPES: Mapping[str, Mapping[str, type]] = {
    "": dict(name=str, vendor=str, architecture=str, compute_capability=str, year=int, aliases=list),
    "compute": {
        **dict(sms=int, boost_clock_mhz=float, vector_clock_mhz=float, warp_size=int, max_threads_per_sm=int),
        **dict(registers_per_sm=int, shared_memory_per_sm_kib=float, tdp_w=float, half_rate_accumulate=bool),
    },
    "memory": {
        **dict(kind=str, size_gb=float, bandwidth_gbps=float, inline_ecc=bool),
        **dict(l2_mib=float, last_level_cache_mib=float),
    },
    "vector_tflops": dict.fromkeys(DTYPES, float),
    "tensor_tflops": dict.fromkeys(DTYPES, float),
    "interconnect": dict(pcie_gen=int, pcie_lanes=int, link=str, link_gbps=float, link_gpus=int),
}
_CLOCKS, _TFLOPS, _SIZES = (1, 100_000), (1e-4, 1e6), (1e-3, 1e6)
_RANGES: Mapping[str, tuple[float, float]] = {
    "year": (1990, 2100),
    "compute.sms": (1, 100_000),
    "compute.boost_clock_mhz": _CLOCKS,
    "compute.vector_clock_mhz": _CLOCKS,
    "compute.warp_size": (1, 1024),
    "compute.max_threads_per_sm": (1, 1 << 20),
    "compute.registers_per_sm": (1, 1 << 30),
    "compute.shared_memory_per_sm_kib": _SIZES,
    "compute.tdp_w": (1, 1e6),
    "memory.size_gb": _SIZES,
    "memory.bandwidth_gbps": (0.1, 1e7),
    "memory.l2_mib": _SIZES,
    "memory.last_level_cache_mib": _SIZES,
    **{f"{section}.{dtype}": _TFLOPS for section in ("vector_tflops", "tensor_tflops") for dtype in DTYPES},
    "interconnect.pcie_gen": (1, 100),
    "interconnect.pcie_lanes": (1, 1024),
    "interconnect.link_gbps": (0.1, 1e6),
    "interconnect.link_gpus": (1, 1e6),
}
"""Least and largest number by key: some thousand times less and more than those of any GPU."""
_MAX_SHOWN_CHARS = 60
_TYPE_NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    list: "a list of strings",
    bool: "true or false",
}
_TEXT_SECTIONS = ("sources", "sourced", "peak_note")
_OPTIONAL_KEYS = frozenset(
    {"aliases", "compute.vector_clock_mhz", "compute.half_rate_accumulate"}
    | {"memory.inline_ecc", "memory.last_level_cache_mib"}
    | {"interconnect.link", "interconnect.link_gbps", "interconnect.link_gpus"}
    | {f"{section}.{dtype}" for section in ("vector_tflops", "tensor_tflops") for dtype in DTYPES}
) - {"vector_tflops.fp32"}


def read_gpu_file(path: Path) -> Gpu:
    """The GPU that a file describes.

    Args:
        path: The file. Its name without the suffix becomes the slug.

    Raises:
        InvalidGpuFileError: The file cannot be read, is no TOML, or has a missing or wrong key.
    """
    try:
        data = read_toml(path)
    except FileNotFoundError:
        raise InvalidGpuFileError(path, "no such file") from None
    except OSError as error:
        raise InvalidGpuFileError(path, f"can't be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidGpuFileError(path, str(error)) from error
    _check_keys(data, path)
    slug = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    return _build_gpu(slug, data)


def _check_keys(data: dict[str, Any], path: Path) -> None:
    """Complains of the first key that is missing, unknown or of the wrong kind."""
    sections = {section: data.get(section, {}) for section in (*_KEY_TYPES, *_TEXT_SECTIONS) if section}
    for section, table in sections.items():
        if not isinstance(table, dict):
            raise InvalidGpuFileError(path, f"{section} must be a table, [{section}]")
    sections[""] = {key: value for key, value in data.items() if key not in sections}
    for section, kinds in _KEY_TYPES.items():
        prefix = f"{section}." if section else ""
        if unknown := sorted(sections[section].keys() - kinds.keys()):
            raise InvalidGpuFileError(path, f"unknown key {prefix}{unknown[0]}; known are {', '.join(kinds)}")
        for key, kind in kinds.items():
            if key in sections[section]:
                _check_value(path, prefix + key, sections[section][key], kind)
            elif prefix + key not in _OPTIONAL_KEYS:
                raise InvalidGpuFileError(path, f"missing key {prefix}{key}")
    for section in _TEXT_SECTIONS:
        for key, value in sections[section].items():
            _check_value(path, f"{section}.{key}", value, str)
    _check_choices(data, path)


def _check_choices(data: Mapping[str, Any], path: Path) -> None:
    """Raise an error for a value of the right type that is not among the known ones."""
    vendor, capability = data["vendor"], data["compute_capability"]
    if data["interconnect"]["pcie_gen"] not in PCIE_LANE_GBPS:
        raise InvalidGpuFileError(path, f"interconnect.pcie_gen must be one of {[*PCIE_LANE_GBPS]}")
    if vendor not in VENDORS:
        raise InvalidGpuFileError(path, f"vendor must be one of {', '.join(VENDORS)}, not {_quote(vendor)}")
    if not re.fullmatch(VENDORS[vendor], capability):
        raise InvalidGpuFileError(
            path, f"compute_capability must look like '9.0' or 'gfx942', not {_quote(capability)}"
        )


def _check_value(path: Path, key: str, value: object, kind: type) -> None:
    allowed = (int, float) if kind is float else (kind,)
    if type(value) not in allowed or (isinstance(value, list) and not all(isinstance(item, str) for item in value)):
        raise InvalidGpuFileError(path, f"{key} must be {_TYPE_NAMES[kind]}, not {_quote(value)}")
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 < value < math.inf:
        raise InvalidGpuFileError(path, f"{key} must be above 0 and finite, not {_quote(value)}")
    if key in _RANGES and isinstance(value, int | float) and not _RANGES[key][0] <= value <= _RANGES[key][1]:
        least, most = _RANGES[key]
        bounds = f"between {least:,.10g} and {most:,.10g}"
        raise InvalidGpuFileError(path, f"{key} must be {bounds}, not {_quote(value)}")


def _quote(value: object) -> str:
    return f"{value!r:.{_MAX_SHOWN_CHARS}}"


def _build_gpu(slug: str, data: Mapping[str, Any]) -> Gpu:
    compute, memory, interconnect = data["compute"], data["memory"], data["interconnect"]
    return Gpu(
        slug=slug,
        **{key: data[key] for key in ("name", "vendor", "architecture", "compute_capability", "year")},
        aliases=tuple(data.get("aliases", ())),
        sms=compute["sms"],
        boost_clock_mhz=compute["boost_clock_mhz"],
        vector_clock_mhz=compute.get("vector_clock_mhz", compute["boost_clock_mhz"]),
        **{key: compute[key] for key in ("warp_size", "max_threads_per_sm", "registers_per_sm", "tdp_w")},
        shared_memory_per_sm_bytes=round(compute["shared_memory_per_sm_kib"] * 2**10),
        memory_kind=memory["kind"],
        memory_bytes=round(memory["size_gb"] * 2**30),
        bandwidth_gbps=memory["bandwidth_gbps"],
        inline_ecc=memory.get("inline_ecc", False),
        l2_bytes=round(memory["l2_mib"] * 2**20),
        last_level_cache_bytes=round(memory.get("last_level_cache_mib", memory["l2_mib"]) * 2**20),
        vector_tflops=MappingProxyType(data["vector_tflops"]),
        tensor_tflops=MappingProxyType(data.get("tensor_tflops", {})),
        pcie_gen=interconnect["pcie_gen"],
        pcie_lanes=interconnect["pcie_lanes"],
        **{key: interconnect.get(key) for key in ("link", "link_gbps", "link_gpus")},
        half_rate_accumulate=compute.get("half_rate_accumulate", False),
        sources=MappingProxyType(_resolve_citations(data)),
        peak_notes=MappingProxyType(data.get("peak_note", {})),
    )


def _resolve_citations(data: Mapping[str, Any]) -> dict[str, str]:
    """Each number's citation: `sourced` names its source, by 'section.key' before by 'section'."""
    sourced, sources = data.get("sourced", {}), data.get("sources", {})
    keys = [(section, key) for section in _KEY_TYPES if section for key in data.get(section, {})]
    numbers = [(section, f"{section}.{key}") for section, key in keys if _KEY_TYPES[section][key] in (int, float)]
    named = {key: sourced.get(key, sourced.get(section)) for section, key in numbers}
    return {key: sources[source] for key, source in named.items() if source in sources}
