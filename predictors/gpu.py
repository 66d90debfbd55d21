"""GPU datasheet facts: one TOML file per GPU, found by any common spelling of its name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from predictors.errors import AmbiguousGpuError, InvalidGpuFileError, UnknownGpuError

__all__ = ["DTYPES", "Gpu", "Resolution", "identify_gpu", "list_gpus", "load_gpu", "resolve_gpu"]

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8")
"""Number formats a GPU file can give a rate for."""

PCIE_LANE_GBPS = {3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Of one PCI Express lane by generation, in one direction after line coding, in 1e9 bytes/s."""

_RUNS_AS = {"fp8_block": "fp8", "nvfp4": "fp4"}
_FOLDER = Path(__file__).with_name("gpus")
_VENDOR_WORDS = frozenset({"nvidia", "tesla", "amd", "instinct", "geforce", "radeon", "gpu"})
_LAPTOP = "laptop"


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
        return _LAPTOP in self.slug.split("-")

    @property
    def pcie_gbps(self) -> float:
        """PCI Express bandwidth in one direction after line coding, in 1e9 bytes/s."""
        return PCIE_LANE_GBPS[self.pcie_gen] * self.pcie_lanes

    def peak_flops(self, dtype: str) -> float | None:
        """Best dense peak for a dtype.

        Args:
            dtype: one of `DTYPES`, 'fp8_block' or 'nvfp4'. 'fp32' means real FP32; TF32 is its own dtype.

        Returns:
            FLOP/s (OP/s for 'int8'), or None where the GPU has no units for it.
        """
        dtype = _RUNS_AS.get(dtype, dtype)
        rates = [table[dtype] for table in (self.vector_tflops, self.tensor_tflops) if dtype in table]
        return max(rates) * 1e12 if rates else None

    def supports(self, dtype: str) -> bool:
        """Whether the GPU has units for a dtype (see `peak_flops`)."""
        return self.peak_flops(dtype) is not None


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a name became a GPU.

    Attributes:
        gpu: the GPU.
        query: what was asked for.
        how: by its 'slug' or an 'alias', from a 'file', by its numbers ('properties'), a family's 'default'.
        others: slugs that the name could mean as well; say them aloud.
    """

    gpu: Gpu
    query: str
    how: Literal["slug", "alias", "file", "properties", "default"]
    others: tuple[str, ...] = ()


def list_gpus() -> list[str]:
    """Slugs of all known GPUs, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_gpu(name: str) -> Gpu:
    """The GPU of that name, or the one that a file describes.

    Args:
        name: any spelling that `resolve_gpu` knows, or a path that ends in '.toml'.

    Raises:
        UnknownGpuError: nothing of that name.
        AmbiguousGpuError: several GPUs could be meant.
        InvalidGpuFileError: a key of the file is missing or wrong.
    """
    return resolve_gpu(name).gpu


def resolve_gpu(name: str) -> Resolution:
    """Finds a GPU by name; case, spaces, punctuation and vendor's words don't matter.

    A bare family name such as 'h100' means the family's usual variant where it has one, and `others` then
    lists its siblings; where it has none, as 'a100' with 40 and 80 GB, that is an error.

    Args:
        name: a slug, driver's name, board number, another tool's spelling, or a path that ends in '.toml'.

    Raises:
        UnknownGpuError: nothing of that name.
        AmbiguousGpuError: several GPUs could be meant.
        InvalidGpuFileError: a key of the file is missing or wrong.

    Examples:
        >>> resolve_gpu("NVIDIA A100-SXM4-80GB").gpu.slug
        'a100-sxm-80gb'
    """
    if name.endswith(".toml"):
        return Resolution(_from_file(Path(name)), name, "file")
    named = _named(name)
    if not named:
        raise UnknownGpuError.from_name(name, _aliases())
    if len(named) > 1:
        raise AmbiguousGpuError(name, named)
    return _resolution(name, named[0])


def identify_gpu(name: str, sms: int, memory_bytes: int, compute_capability: str | None) -> Resolution:
    """Finds the GPU of a trace by its driver's name first, by its numbers second.

    A name whose numbers fit another variant of the same family means that variant. A blank or unknown name goes
    by the numbers alone.

    Args:
        name: the driver's name, which may be empty.
        sms: SM or CU count; 0 if not recorded.
        memory_bytes: total memory; 0 if not recorded.
        compute_capability: '8.0', 'gfx90a', or on AMD also 'major.minor'; None if not recorded.

    Raises:
        UnknownGpuError: no GPU has these numbers.
        AmbiguousGpuError: several GPUs have.
    """
    named = _named(name)

    def fitting(slugs: Iterable[str]) -> list[str]:
        return [slug for slug in slugs if _fits(_load(slug), sms, memory_bytes, compute_capability)]

    found = fitting(named)
    if len(found) == len(named) == 1:
        return _resolution(name, found[0])
    if named and not found:
        family = {slug.partition("-")[0] for slug in named}
        found = _nearest(fitting(slug for slug in list_gpus() if slug.partition("-")[0] in family), named)
    elif not named and sms and memory_bytes:
        found = fitting(list_gpus())
    if not found:
        raise UnknownGpuError.from_properties(name, sms, memory_bytes)
    if len(found) > 1:
        raise AmbiguousGpuError(name or f"{sms} SMs, {memory_bytes / 2**30:.0f} GiB", found)
    return Resolution(_load(found[0]), name, "properties", tuple(slug for slug in named if slug != found[0]))


def _resolution(name: str, slug: str) -> Resolution:
    if _compact(name) == _compact(slug):
        return Resolution(_load(slug), name, "slug")
    others = tuple(other for other in _family(name) if other != slug)
    return Resolution(_load(slug), name, "default" if others else "alias", others)


def _fits(gpu: Gpu, sms: int, memory_bytes: int, compute_capability: str | None) -> bool:
    # Error correction on GDDR is kept in the memory itself, which a driver subtracts from the size.
    least = 0.95 if "HBM" in gpu.memory_kind else 0.9
    return (
        sms in (0, gpu.sms)
        and (memory_bytes == 0 or least <= memory_bytes / gpu.memory_bytes <= 1.05)
        and (not compute_capability or compute_capability.split(":")[0] in _capabilities(gpu))
    )


def _capabilities(gpu: Gpu) -> tuple[str, ...]:
    """Spellings of the compute capability; Kineto writes gfx942 as major 9, minor 4."""
    target = gpu.compute_capability.removeprefix("gfx")
    return (gpu.compute_capability, f"{target[:-2]}.{target[-2]}") if gpu.vendor == "amd" else (target,)


def _nearest(slugs: list[str], named: Iterable[str]) -> list[str]:
    """Those that share most of their name with one that was named."""
    shared = {s: max(len(set(s.split("-")) & set(n.split("-"))) for n in named) for s in slugs}
    return [slug for slug in slugs if shared[slug] == max(shared.values())]


def _named(name: str) -> list[str]:
    """Slugs that a name may mean; a name such as 'MI250X / MI250' means several."""
    index = _index()
    if _compact(name) in index:
        return [index[_compact(name)]]
    found: list[str] = []
    for part in name.split("/"):
        known = index.get(_compact(part))
        found += [known] if known else _family(part)
    return sorted(set(found))


def _family(name: str) -> list[str]:
    """Slugs that have every word of a name, and begin with its first: 'V100 32GB' or 'v100-32'.

    A laptop's GPU has less of everything than the board of its name, so it is meant only where the name says so.
    """
    words = _words(name)

    def member(slug: str) -> bool:
        parts = slug.split("-")
        if (_LAPTOP in parts) != (_LAPTOP in words):
            return False
        return words[0] == parts[0] and all(word in parts or f"{word}gb" in parts for word in words)

    return [slug for slug in list_gpus() if member(slug)] if words else []


def _words(name: str) -> list[str]:
    """A name's words without the vendor's; a socket's generation and the space in '80 GB' don't count."""
    name = re.sub(r"(\bsxm)\d\b|(\d) (?=gb\b)", r"\1\2", name.lower())
    return [word for word in re.findall(r"[a-z0-9]+", name) if word not in _VENDOR_WORDS]


def _compact(name: str) -> str:
    return "".join(_words(name))


@cache
def _aliases() -> dict[str, str]:
    """Slug by every spelling in the data base, from the files' heads alone: parsing all is slower."""
    spellings: dict[str, str] = {}
    for slug in list_gpus():
        head = (_FOLDER / f"{slug}.toml").read_text(encoding="utf-8").partition("\n[")[0]
        spellings |= dict.fromkeys([slug, *tomllib.loads(head)["aliases"]], slug)
    return spellings


@cache
def _index() -> dict[str, str]:
    return {_compact(spelling): slug for spelling, slug in _aliases().items()}


@cache
def _load(slug: str) -> Gpu:
    return _from_file(_FOLDER / f"{slug}.toml")


_KEYS: Mapping[str, Mapping[str, type]] = {
    "": dict(name=str, vendor=str, architecture=str, compute_capability=str, year=int, aliases=list),
    "compute": {
        **dict(sms=int, boost_clock_mhz=float, vector_clock_mhz=float, warp_size=int, max_threads_per_sm=int),
        **dict(registers_per_sm=int, shared_memory_per_sm_kib=float, tdp_w=float, half_rate_accumulate=bool),
    },
    "memory": dict(kind=str, size_gb=float, bandwidth_gbps=float, l2_mib=float, last_level_cache_mib=float),
    "vector_tflops": dict.fromkeys(DTYPES, float),
    "tensor_tflops": dict.fromkeys(DTYPES, float),
    "interconnect": dict(pcie_gen=int, pcie_lanes=int, link=str, link_gbps=float, link_gpus=int),
}
_KINDS = {str: "a string", int: "a whole number", float: "a number", list: "a list", bool: "true or false"}
_FREE_TEXT = ("sources", "sourced", "peak_note")
_OPTIONAL = frozenset(
    {"aliases", "compute.vector_clock_mhz", "compute.half_rate_accumulate", "memory.last_level_cache_mib"}
    | {"interconnect.link", "interconnect.link_gbps", "interconnect.link_gpus"}
    | {f"{section}.{dtype}" for section in ("vector_tflops", "tensor_tflops") for dtype in DTYPES}
) - {"vector_tflops.fp32"}


def _from_file(path: Path) -> Gpu:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidGpuFileError(path, "no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidGpuFileError(path, f"not TOML: {error}") from error
    _check(data, path)
    slug = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    return _build(slug, data)


def _check(data: dict[str, Any], path: Path) -> None:
    """Complains of the first key that is missing, unknown or of the wrong kind."""
    sections = {section: data.get(section, {}) for section in (*_KEYS, *_FREE_TEXT) if section}
    for section, table in sections.items():
        if not isinstance(table, dict):
            raise InvalidGpuFileError(path, f"{section} must be a table, [{section}]")
    sections[""] = {key: value for key, value in data.items() if key not in sections}
    for section, kinds in _KEYS.items():
        prefix = f"{section}." if section else ""
        if unknown := sorted(sections[section].keys() - kinds.keys()):
            raise InvalidGpuFileError(path, f"unknown key {prefix}{unknown[0]}; known are {', '.join(kinds)}")
        for key, kind in kinds.items():
            if key in sections[section]:
                _check_value(path, prefix + key, sections[section][key], kind)
            elif prefix + key not in _OPTIONAL:
                raise InvalidGpuFileError(path, f"missing key {prefix}{key}")
    if sections["interconnect"]["pcie_gen"] not in PCIE_LANE_GBPS:
        raise InvalidGpuFileError(path, f"interconnect.pcie_gen must be one of {[*PCIE_LANE_GBPS]}")


def _check_value(path: Path, key: str, value: object, kind: type) -> None:
    allowed = (int, float) if kind is float else (kind,)
    if type(value) not in allowed:
        raise InvalidGpuFileError(path, f"{key} must be {_KINDS[kind]}, not {value!r}")
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
        raise InvalidGpuFileError(path, f"{key} must be above 0, not {value!r}")


def _build(slug: str, data: Mapping[str, Any]) -> Gpu:
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
        l2_bytes=round(memory["l2_mib"] * 2**20),
        last_level_cache_bytes=round(memory.get("last_level_cache_mib", memory["l2_mib"]) * 2**20),
        vector_tflops=MappingProxyType(data["vector_tflops"]),
        tensor_tflops=MappingProxyType(data.get("tensor_tflops", {})),
        pcie_gen=interconnect["pcie_gen"],
        pcie_lanes=interconnect["pcie_lanes"],
        **{key: interconnect.get(key) for key in ("link", "link_gbps", "link_gpus")},
        half_rate_accumulate=compute.get("half_rate_accumulate", False),
        sources=MappingProxyType(_cited(data)),
        peak_notes=MappingProxyType(data.get("peak_note", {})),
    )


def _cited(data: Mapping[str, Any]) -> dict[str, str]:
    """Each number's citation: `sourced` names its source, by 'section.key' before by 'section'."""
    sourced, sources = data.get("sourced", {}), data.get("sources", {})
    keys = [(section, key) for section in _KEYS if section for key in data.get(section, {})]
    numbers = [(section, f"{section}.{key}") for section, key in keys if _KEYS[section][key] in (int, float)]
    named = {key: sourced.get(key, sourced.get(section)) for section, key in numbers}
    return {key: sources[source] for key, source in named.items() if source in sources}
