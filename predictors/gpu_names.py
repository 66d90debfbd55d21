"""Find a GPU by any common spelling of its name, by its properties, or by a file; read and check such files."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from predictors.cpu_files import CPU_FILES, KEYS, OPTIONAL_KEYS, UNITS, build_cpu, list_cpus, split_cores
from predictors.errors import AmbiguousGpuError, InvalidGpuFileError, UnknownGpuError
from predictors.given_files import read_toml
from predictors.gpu import CPU_VENDOR, DTYPES, LAPTOP_WORD, PCIE_LANE_GBPS, VENDORS, Gpu

GPU_FILES = Path(__file__).with_name("gpus")
"""Those of the data base, named by their slugs."""

KEY_TYPES: Mapping[str, Mapping[str, type]] = {
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
"""Sections and keys of a GPU's file, with their types."""
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
    "compute.cores": (1, 10_000),
    "compute.clock_mhz": _CLOCKS,
    "memory.channels": (1, 1000),
    "memory.l2_mib_per_core": _SIZES,
    "memory.l3_mib": _SIZES,
    "memory.l3_cores": (1, 10_000),
    **{f"tflops.{dtype}": _TFLOPS for dtype in DTYPES},
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

    The name of the file without its suffix becomes the slug.

    Raises:
        InvalidGpuFileError: The file cannot be read, is no TOML, or has a missing or wrong key.
    """
    return _read_file(path)


def _read_file(path: Path, cores: int | None = None) -> Gpu:
    """Read the file of a GPU, or of a CPU of which ``cores`` are used; None for all."""
    try:
        data = read_toml(path)
    except FileNotFoundError:
        raise InvalidGpuFileError(path, "no such file") from None
    except OSError as error:
        raise InvalidGpuFileError(path, f"can't be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidGpuFileError(path, str(error)) from error
    slug = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    if data.get("vendor") == CPU_VENDOR:
        _check_keys(data, path, KEYS, OPTIONAL_KEYS)
        if data["units"] not in UNITS:
            raise InvalidGpuFileError(path, f"units must be one of {', '.join(UNITS)}, not {_quote(data['units'])}")
        return build_cpu(slug, data, path, cores)
    if cores is not None:
        raise InvalidGpuFileError(path, "it is no CPU, of which some cores could be used")
    _check_keys(data, path, KEY_TYPES, _OPTIONAL_KEYS)
    _check_choices(data, path)
    return _build_gpu(slug, data)


def _check_keys(
    data: dict[str, Any], path: Path, known: Mapping[str, Mapping[str, type]], optional: frozenset[str]
) -> None:
    """Complains of the first key that is missing, unknown or of the wrong kind."""
    sections = {section: data.get(section, {}) for section in (*known, *_TEXT_SECTIONS) if section}
    for section, table in sections.items():
        if not isinstance(table, dict):
            raise InvalidGpuFileError(path, f"{section} must be a table, [{section}]")
    sections[""] = {key: value for key, value in data.items() if key not in sections}
    for section, kinds in known.items():
        prefix = f"{section}." if section else ""
        if unknown := sorted(sections[section].keys() - kinds.keys()):
            raise InvalidGpuFileError(path, f"unknown key {prefix}{unknown[0]}; known are {', '.join(kinds)}")
        for key, kind in kinds.items():
            if key in sections[section]:
                _check_value(path, prefix + key, sections[section][key], kind)
            elif prefix + key not in optional:
                raise InvalidGpuFileError(path, f"missing key {prefix}{key}")
    for section in _TEXT_SECTIONS:
        for key, value in sections[section].items():
            _check_value(path, f"{section}.{key}", value, str)


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
    keys = [(section, key) for section in KEY_TYPES if section for key in data.get(section, {})]
    numbers = [(section, f"{section}.{key}") for section, key in keys if KEY_TYPES[section][key] in (int, float)]
    named = {key: sourced.get(key, sourced.get(section)) for section, key in numbers}
    return {key: sources[source] for key, source in named.items() if source in sources}


_VENDOR_WORDS = frozenset(
    {"nvidia", "tesla", "amd", "instinct", "geforce", "radeon", "intel", "r", "tm", "graphics", "gpu"}
)
_CHIP_WORDS = frozenset({LAPTOP_WORD, "ti", "super"})


_GIVEN: dict[str, Gpu] = {}
"""Those of users' files that were read, by their slugs: what a file describes is known by its name from then on."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """GPU that a name was resolved to.

    Attributes:
        gpu: The GPU.
        query: Name that was asked for.
        how: By a 'slug' or an 'alias', from a 'file', by its 'properties', or as the 'default' of a family.
        others: Slugs that the name could mean as well; show them to the user.
    """

    gpu: Gpu
    query: str
    how: Literal["slug", "alias", "file", "properties", "default"]
    others: tuple[str, ...] = ()


def list_gpus() -> list[str]:
    """Slugs of all known GPUs, sorted."""
    return list(_list_files())


@cache
def _list_files() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in GPU_FILES.glob("*.toml")))


def load_gpu(name: str) -> Gpu:
    """Return the GPU of a name, or the one that a file describes.

    Args:
        name: Any spelling that ``resolve_gpu`` knows, or a path that ends in '.toml'.

    Raises:
        UnknownGpuError: No GPU has that name.
        AmbiguousGpuError: Several GPUs match.
        InvalidGpuFileError: A key of the file is missing or wrong.
    """
    return resolve_gpu(name).gpu


def resolve_gpu(name: str) -> Resolution:
    """Find a GPU by name; case, spaces, punctuation and vendor words are ignored.

    A family name such as 'h100' means the usual variant of the family if it has one; ``others`` then lists its
    siblings. A family without a usual variant, such as 'a100' with 40 and 80 GB, is an error.

    Args:
        name: A slug, driver name, board number, spelling of another tool, or a path that ends in '.toml'.

    Raises:
        UnknownGpuError: No GPU has that name.
        AmbiguousGpuError: Several GPUs match.
        InvalidGpuFileError: A key of the file is missing or wrong.

    Examples:
        >>> resolve_gpu("NVIDIA A100-SXM4-80GB").gpu.slug
        'a100-sxm-80gb'
    """
    if name in _GIVEN:
        return Resolution(_GIVEN[name], name, "file")
    whole, cores = split_cores(name)
    if whole.endswith(".toml"):
        return Resolution(_load_user_gpu(Path(whole), cores), name, "file")
    if cores is not None and not Path(whole).suffix:
        found = resolve_gpu(whole)
        return Resolution(_load_cores(found.gpu.slug, cores), name, found.how)
    named = _find_slugs(name)
    if not named:
        raise UnknownGpuError.from_name(name, _load_aliases())
    if len(named) > 1:
        raise AmbiguousGpuError(name, named)
    return _build_resolution(name, named[0])


def _load_cores(slug: str, cores: int) -> Gpu:
    """Some cores of a known CPU."""
    return _read_file((CPU_FILES if slug in list_cpus() else GPU_FILES) / f"{slug}.toml", cores)


def _load_user_gpu(path: Path, cores: int | None = None) -> Gpu:
    """The GPU of a user's file, which has to have a name of its own: fitted numbers and measurements go by it."""
    gpu = _read_file(path, cores)
    if gpu.slug in (*list_gpus(), *list_cpus()) and gpu != _load_known_gpu(gpu.slug):
        raise InvalidGpuFileError(path, f"{gpu.slug} is a known GPU with other figures; give the file another name")
    _GIVEN[gpu.slug] = gpu
    return gpu


def identify_gpu(name: str, sms: int, memory_bytes: int, compute_capability: str | None) -> Resolution:
    """Identify the GPU of a trace, first by its driver name, then by its properties.

    If the properties match another variant of the named family, that variant is meant. A blank or unknown name is
    ignored; the properties alone decide.

    Args:
        name: Driver name, which may be empty.
        sms: SM or CU count; 0 if not recorded.
        memory_bytes: Total memory; 0 if not recorded.
        compute_capability: '8.0', 'gfx90a', or on AMD also 'major.minor'; None if not recorded.

    Raises:
        UnknownGpuError: No GPU has these properties.
        AmbiguousGpuError: Several GPUs have them.
    """
    named = _find_slugs(name)

    def fitting(slugs: Iterable[str]) -> list[str]:
        return [
            slug for slug in slugs if _matches_properties(_load_known_gpu(slug), sms, memory_bytes, compute_capability)
        ]

    found = fitting(named)
    if len(found) == len(named) == 1:
        return _build_resolution(name, found[0])
    if named and not found:
        family = {slug.partition("-")[0] for slug in named}
        found = _select_closest_names(fitting(slug for slug in list_gpus() if slug.partition("-")[0] in family), named)
    elif not named and sms and memory_bytes:
        found = fitting(list_gpus())
    if not found:
        raise UnknownGpuError.from_properties(name, sms, memory_bytes)
    if len(found) > 1:
        raise AmbiguousGpuError(name or f"{sms} SMs, {memory_bytes / 2**30:.0f} GiB", found)
    return Resolution(_load_known_gpu(found[0]), name, "properties", tuple(slug for slug in named if slug != found[0]))


def _build_resolution(name: str, slug: str) -> Resolution:
    if _normalize_name(name) == _normalize_name(slug):
        return Resolution(_load_known_gpu(slug), name, "slug")
    others = tuple(other for other in _find_family_slugs(name) if other != slug)
    return Resolution(_load_known_gpu(slug), name, "default" if others else "alias", others)


def _matches_properties(gpu: Gpu, sms: int, memory_bytes: int, compute_capability: str | None) -> bool:
    # Error correction on GDDR is kept in the memory itself, which a driver subtracts from the size.
    # Where CPU and GPU share the memory, a setting says how much of it is the GPU's.
    shared = gpu.memory_kind.startswith("LPDDR")
    least = 0.0 if shared else 0.95 if "HBM" in gpu.memory_kind else 0.9
    return (
        sms in (0, gpu.sms)
        and (memory_bytes == 0 or least <= memory_bytes / gpu.memory_bytes <= 1.05)
        and (not compute_capability or compute_capability.split(":")[0] in _list_capability_spellings(gpu))
    )


def _list_capability_spellings(gpu: Gpu) -> tuple[str, ...]:
    """Spellings of the compute capability; Kineto writes gfx942 as major 9, minor 4."""
    target = gpu.compute_capability.removeprefix("gfx")
    return (gpu.compute_capability, f"{target[:-2]}.{target[-2]}") if gpu.vendor == "amd" else (target,)


def _select_closest_names(slugs: list[str], named: Iterable[str]) -> list[str]:
    """Those that share most of their name with one that was named."""
    shared = {s: max(len(set(s.split("-")) & set(n.split("-"))) for n in named) for s in slugs}
    return [slug for slug in slugs if shared[slug] == max(shared.values())]


def _find_slugs(name: str) -> list[str]:
    """Slugs that a name may mean; a name such as 'MI250X / MI250' means several."""
    if name in _list_files() or name in list_cpus():  # which takes a tenth of the time of reading all aliases
        return [name]
    index = _build_name_index()
    if _normalize_name(name) in index:
        return [index[_normalize_name(name)]]
    found: list[str] = []
    for part in name.split("/"):
        known = index.get(_normalize_name(part))
        found += [known] if known else _find_family_slugs(part)
    return sorted(set(found))


def _find_family_slugs(name: str) -> list[str]:
    """Slugs that have every word of a name, and begin with its first: 'V100 32GB' or 'v100-32'.

    A laptop GPU, a "Ti" or a "Super" is another chip than the board without that word. It matches only if the name has
    the word.
    """
    words = _split_name(name)

    def member(slug: str) -> bool:
        parts = slug.split("-")
        if _CHIP_WORDS & {*parts} != _CHIP_WORDS & {*words}:
            return False
        return words[0] == parts[0] and all(word in parts or f"{word}gb" in parts for word in words)

    return [slug for slug in list_gpus() if member(slug)] if words else []


def _split_name(name: str) -> list[str]:
    """A name's words without the vendor's; a socket's generation and the space in '80 GB' don't count."""
    name = re.sub(r"(\bsxm)\d\b|(\d) (?=gb\b)", r"\1\2", name.lower())
    return [word for word in re.findall(r"[a-z0-9]+", name) if word not in _VENDOR_WORDS]


def _normalize_name(name: str) -> str:
    return "".join(_split_name(name))


@cache
def _load_aliases() -> dict[str, str]:
    """Slug by every spelling in the data base, from the files' heads alone: parsing all is slower."""
    spellings: dict[str, str] = {}
    for path in [*GPU_FILES.glob("*.toml"), *CPU_FILES.glob("*.toml")]:
        slug, head = path.stem, path.read_text(encoding="utf-8").partition("\n[")[0]
        spellings |= dict.fromkeys([slug, *tomllib.loads(head)["aliases"]], slug)
    return spellings


@cache
def _build_name_index() -> dict[str, str]:
    return {_normalize_name(spelling): slug for spelling, slug in _load_aliases().items()}


@cache
def _load_known_gpu(slug: str) -> Gpu:
    return read_gpu_file((CPU_FILES if slug in list_cpus() else GPU_FILES) / f"{slug}.toml")
