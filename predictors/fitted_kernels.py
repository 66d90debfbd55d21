"""Tell what a law was fitted to: which libraries, engines and releases, by table and GPU.

A release is a place within its engine. Between two releases of a fit, a kernel is taken for that of the newer one,
beyond them for that of the newest: nothing is known of what changed. Before the oldest, too: where the oldest release
was left out of a fit, the newest was as near as the next one or nearer (prefill of vLLM 0.14 is 8 % off by 0.24, 19 %
by 0.19).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from predictors.arrays import Bools, CategoricalColumn, Columns, Floats, Frameworks, Ints
from predictors.kernel_identity import SERVING_FRAMEWORKS

LATENT_APART = 160
"""Elements of a head of latent attention whose keys are not absorbed: the mean of keys (192) and values (128)."""
ReleasesByGpu = Mapping[str, Mapping[str, Sequence[float]]]
"""Slug of a GPU -> 'table/engine/library' -> measured releases, as numbers, oldest first."""


def name_tables(law: str, head_dim: Floats, batch: Floats) -> tuple[tuple[str, str], Bools]:
    """Return the two tables that a law's kernels are measured in, and which rows are of the second.

    Latent attention doesn't tell how fast the prefill of an engine is, nor batched products how fast its linear layers
    are: other kernels run them.
    """
    kind = law.split(" ")[0]
    if kind == "prefill":
        return ("prefill", "latent prefill"), head_dim == LATENT_APART
    if kind == "gemm":
        return ("gemm", "batched gemm"), batch > 1
    return (kind, kind), np.zeros(batch.size, dtype=np.bool_)


def get_key(table: str, engine: str, library: str) -> str:
    """What the releases of an engine's kernels of one library are kept under."""
    return f"{table}/{engine}/{library}"


@dataclass(frozen=True)
class FittedKernels:
    """Kernels of serving engines that one GPU or several were measured on.

    Attributes:
        releases: 'table/engine/library' -> releases, oldest first.
    """

    releases: Mapping[str, Sequence[float]]

    @cached_property
    def of_engine(self) -> Mapping[str, Sequence[float]]:
        """'table/engine' -> releases of any of its libraries, oldest first."""
        found: dict[str, set[float]] = {}
        for key, releases in self.releases.items():
            found.setdefault(key.rpartition("/")[0], set()).update(releases)
        return {key: sorted(releases) for key, releases in found.items()}

    def list_own_releases(self, table: str, engine: str, library: str) -> Sequence[float]:
        """Return the releases of an engine's library; of all its libraries where none is told."""
        of_any = self.of_engine.get(f"{table}/{engine}", ()) if library == engine else ()
        return of_any or self.releases.get(get_key(table, engine, library), ())

    def list_releases(self, table: str, engine: str, library: str) -> Sequence[float]:
        """Return the releases of an engine's library, of all its libraries where this one isn't known."""
        own = self.releases.get(get_key(table, engine, library), ())
        return own or self.of_engine.get(f"{table}/{engine}", ())

    def has(self, table: str, engine: str, library: str, release: float) -> bool:
        """Whether an engine's library was measured in a release."""
        return release in self.releases.get(get_key(table, engine, library), ())

    def has_release(self, table: str, engine: str, release: float) -> bool:
        """Whether any of an engine's libraries was measured in a release."""
        return release in self.of_engine.get(f"{table}/{engine}", ())

    def surrounds(self, table: str, engine: str, library: str, release: float) -> bool:
        """Whether a release is one of those of an engine's library, or between two of them."""
        known = self.list_own_releases(table, engine, library)
        return bool(known) and known[0] <= release <= known[-1]

    def list_like(self, table: str, engine: str, library: str, release: float) -> list[tuple[str, float]]:
        """Return the libraries and releases that a kernel may be of: of a release in between, those on both sides.

        The library is the engine itself, the release negative, where they aren't told.
        """
        known = self.of_engine.get(f"{table}/{engine}", ())
        near = known
        if release >= 0:
            older = max((one for one in known if one < release), default=release)
            newer = min((one for one in known if one > release), default=release)
            near = (release,) if release in known else (older, newer)
        libraries = [key.rpartition("/")[2] for key in self.releases if key.startswith(f"{table}/{engine}/")]
        among = libraries if library == engine else [library]
        return [(name, one) for name in among for one in near if self.has(table, engine, name, one)]

    def place(self, table: str, engine: str, library: str, release: float) -> float:
        """Return the release of the fit that a kernel is taken for: its own, between two the newer, else the newest."""
        known = self.list_releases(table, engine, library)
        if not known:
            return release
        return min((one for one in known if known[0] <= release <= one), default=known[-1])


def join_kernels(several: Iterable[Mapping[str, Sequence[float]]]) -> FittedKernels:
    """Return what several GPUs together were measured on."""
    found: dict[str, set[float]] = {}
    for one in several:
        for key, releases in one.items():
            found.setdefault(key, set()).update(releases)
    return FittedKernels({key: sorted(releases) for key, releases in found.items()})


def place_releases(law: str, x: Columns, frameworks: Frameworks, fitted: FittedKernels) -> Floats:
    """Return each row's release as one that its law was fitted to; rows without one keep what says so.

    Args:
        law: Law of all rows.
        x: Columns of the law.
        frameworks: Library of each row.
        fitted: What is known of the GPU.
    """
    release = x["release"].copy()
    for kernel, rows in iterate_kernels(law, x, frameworks):
        if kernel[-1] >= 0:
            release[rows] = fitted.place(*kernel)
    return release


class Told(NamedTuple):
    """What a fit knows of rows with a release.

    Attributes:
        exactly: Which are of a fitted engine, release and library.
        of_release: Which are of a fitted engine and release.
        of_sibling: Which are of an engine, release and library that was fitted on another GPU of the architecture.
        between: Which are between fitted releases, or of one that was fitted on other GPUs.
        known: Which are of a library that was fitted in any release of their engine.
    """

    exactly: Bools
    of_release: Bools
    of_sibling: Bools
    between: Bools
    known: Bools

    @classmethod
    def build_empty(cls, rows: int) -> Told:
        """Of rows of no engine."""
        return cls(*np.zeros((len(cls._fields), rows), dtype=np.bool_))


def find_fitted(law: str, x: Columns, frameworks: Frameworks, fitted: FittedKernels, alike: FittedKernels) -> Told:
    """Return what a fit knows of a law's rows.

    ``fitted`` is what was measured on the GPU, ``alike`` on all GPUs of its architecture; the others are those of
    ``place_releases``.
    """
    told = Told.build_empty(x["release"].size)
    for kernel, rows in iterate_kernels(law, x, frameworks):
        table, engine, _, release = kernel
        told.exactly[rows] = fitted.has(*kernel)
        told.of_release[rows] = fitted.has_release(table, engine, release)
        told.of_sibling[rows] = alike.has(*kernel)
        told.between[rows] = release >= 0 and alike.surrounds(*kernel)
        told.known[rows] = bool(alike.list_own_releases(*kernel[:3]))
    return told


Kernel = tuple[str, str, str, float]
"""Table, engine, library and release; a negative release isn't told."""


def iterate_kernels(law: str, x: Columns, frameworks: Frameworks) -> Iterator[tuple[Kernel, Ints]]:
    """Yield each engine's kernel among a law's rows, and its rows.

    Args: as of ``place_releases``.
    """
    of_engine = np.array([x[f"of_{name}"] for name in SERVING_FRAMEWORKS])
    served = np.flatnonzero(of_engine.any(axis=0))
    if not served.size or frameworks is None:
        return
    tables, second = name_tables(law, x["head_dim"][served], x["batch"][served])
    library = CategoricalColumn.from_series(pl.Series("library", frameworks[served].tolist(), dtype=pl.String))
    keys = [second, of_engine[:, served].argmax(axis=0), library.codes, x["release"][served]]
    kernels, of_row = np.unique(np.stack(keys).astype(np.float64), axis=1, return_inverse=True)
    for number, (table, engine, name, release) in enumerate(kernels.T.tolist()):
        kernel = (tables[int(table)], SERVING_FRAMEWORKS[int(engine)], library.categories[int(name)] or "", release)
        yield kernel, served[of_row.reshape(-1) == number]
