"""Which GPU is meant: by any common spelling of its name, by its numbers, or by a file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from predictors.errors import AmbiguousGpuError, InvalidGpuFileError, UnknownGpuError
from predictors.gpu import LAPTOP, Gpu
from predictors.gpu_file import FOLDER, from_file

_VENDOR_WORDS = frozenset({"nvidia", "tesla", "amd", "instinct", "geforce", "radeon", "gpu"})
_OTHER_CHIP = frozenset({LAPTOP, "ti", "super"})


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
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


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
        return Resolution(_own(Path(name)), name, "file")
    named = _named(name)
    if not named:
        raise UnknownGpuError.from_name(name, _aliases())
    if len(named) > 1:
        raise AmbiguousGpuError(name, named)
    return _resolution(name, named[0])


def _own(path: Path) -> Gpu:
    """The GPU of a user's file, which has to have a name of its own: fitted numbers and measurements go by it."""
    gpu = from_file(path)
    if gpu.slug in list_gpus() and gpu != _load(gpu.slug):
        raise InvalidGpuFileError(path, f"{gpu.slug} is a known GPU with other figures; give the file another name")
    return gpu


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

    A laptop's GPU, a "Ti" or a "Super" is another chip than the board of its name, so it is meant only where the name
    says so.
    """
    words = _words(name)

    def member(slug: str) -> bool:
        parts = slug.split("-")
        if _OTHER_CHIP & {*parts} != _OTHER_CHIP & {*words}:
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
        head = (FOLDER / f"{slug}.toml").read_text(encoding="utf-8").partition("\n[")[0]
        spellings |= dict.fromkeys([slug, *tomllib.loads(head)["aliases"]], slug)
    return spellings


@cache
def _index() -> dict[str, str]:
    return {_compact(spelling): slug for spelling, slug in _aliases().items()}


@cache
def _load(slug: str) -> Gpu:
    return from_file(FOLDER / f"{slug}.toml")
