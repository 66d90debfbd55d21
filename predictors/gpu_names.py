"""Find a GPU by any common spelling of its name, by its properties, or by a file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from predictors.errors import AmbiguousGpuError, InvalidGpuFileError, UnknownGpuError
from predictors.gpu import LAPTOP_WORD, Gpu
from predictors.gpu_file import GPU_FILES, read_gpu_file

_VENDOR_WORDS = frozenset(
    {"nvidia", "tesla", "amd", "instinct", "geforce", "radeon", "intel", "r", "tm", "graphics", "gpu"}
)
_CHIP_WORDS = frozenset({LAPTOP_WORD, "ti", "super"})


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
    if name.endswith(".toml"):
        return Resolution(_load_user_gpu(Path(name)), name, "file")
    named = _find_slugs(name)
    if not named:
        raise UnknownGpuError.from_name(name, _load_aliases())
    if len(named) > 1:
        raise AmbiguousGpuError(name, named)
    return _build_resolution(name, named[0])


def _load_user_gpu(path: Path) -> Gpu:
    """The GPU of a user's file, which has to have a name of its own: fitted numbers and measurements go by it."""
    gpu = read_gpu_file(path)
    if gpu.slug in list_gpus() and gpu != _load_known_gpu(gpu.slug):
        raise InvalidGpuFileError(path, f"{gpu.slug} is a known GPU with other figures; give the file another name")
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
    if name in _list_files():  # which takes a tenth of the time of reading all aliases
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
    for slug in list_gpus():
        head = (GPU_FILES / f"{slug}.toml").read_text(encoding="utf-8").partition("\n[")[0]
        spellings |= dict.fromkeys([slug, *tomllib.loads(head)["aliases"]], slug)
    return spellings


@cache
def _build_name_index() -> dict[str, str]:
    return {_normalize_name(spelling): slug for spelling, slug in _load_aliases().items()}


@cache
def _load_known_gpu(slug: str) -> Gpu:
    return read_gpu_file(GPU_FILES / f"{slug}.toml")
