"""Tell what a law was fitted to: which libraries, engines and releases, by table and GPU.

A release is a place within its engine. Between the releases of a fit, or beyond them, a kernel is taken for that of the
next newer one, or of the newest: nothing is known of what changed in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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

    def list_releases(self, table: str, engine: str, library: str) -> Sequence[float]:
        """Return the releases of an engine's library, of all its libraries where this one isn't known."""
        own = self.releases.get(get_key(table, engine, library), ())
        return own or self.of_engine.get(f"{table}/{engine}", ())

    def place(self, table: str, engine: str, library: str, release: float) -> float:
        """Return the release of the fit that a kernel is taken for: its own, the next newer one, or else the newest."""
        known = self.list_releases(table, engine, library)
        return min((one for one in known if one >= release), default=known[-1] if known else release)


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
    kinds, of_row, rows = _list_kernels(law, x, frameworks)
    release = x["release"].copy()
    release[rows] = np.array([fitted.place(*kind) for kind in kinds])[of_row]
    return release


def find_fitted(law: str, x: Columns, frameworks: Frameworks, fitted: FittedKernels) -> tuple[Bools, Bools]:
    """Return which rows are of an engine, release and library that were fitted, and which of such an engine's release.

    Args: as of ``place_releases``.
    """
    kinds, of_row, rows = _list_kernels(law, x, frameworks)
    exact, of_release = np.zeros((2, x["release"].size), dtype=np.bool_)
    exact[rows] = np.array([release in fitted.releases.get(get_key(*of), ()) for *of, release in kinds])[of_row]
    of_release[rows] = np.array([r in fitted.of_engine.get(f"{t}/{e}", ()) for t, e, _, r in kinds])[of_row]
    return exact, of_release


_Kernel = tuple[str, str, str, float]


def _list_kernels(law: str, x: Columns, frameworks: Frameworks) -> tuple[list[_Kernel], Ints, Ints]:
    """Return the distinct (table, engine, library, release) of rows with a release, which each has, and these rows."""
    of_engine = np.array([x[f"of_{name}"] for name in SERVING_FRAMEWORKS])
    rows = np.flatnonzero((x["release"] >= 0) & of_engine.any(axis=0))
    if not rows.size or frameworks is None:
        return [], np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    tables, second = name_tables(law, x["head_dim"][rows], x["batch"][rows])
    library = CategoricalColumn.from_series(pl.Series("library", frameworks[rows].tolist(), dtype=pl.String))
    keys = [second, of_engine[:, rows].argmax(axis=0), library.codes, x["release"][rows]]
    kinds, of_row = np.unique(np.stack(keys).astype(np.float64), axis=1, return_inverse=True)
    names = [
        (tables[int(t)], SERVING_FRAMEWORKS[int(e)], library.categories[int(name)] or "", float(release))
        for t, e, name, release in kinds.T
    ]
    return names, of_row.reshape(-1), rows
