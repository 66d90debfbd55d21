"""The model alone: kernel table and GPU -> times and what limits them, without any measurement of the kernels."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from predictors.arrays import Bools, Floats
from predictors.columns import Sizes, as_run, sizes
from predictors.features import features
from predictors.fitted import Weights
from predictors.law import EXPONENTIAL_LAWS, LAWS
from predictors.machine import Machine
from predictors.precision import formats
from predictors.roofline import arithmetic_us, bound_us, on_matrix_units
from predictors.surface import coordinates
from predictors.terms import Columns, Terms

CHUNK_ROWS = 16384  # so that a chunk's columns stay in the CPU's cache
LIMITERS = ("compute", "memory", "latency", "unknown")
THREADS = min(os.cpu_count() or 1, 4)


@dataclass(frozen=True)
class Part:
    """Rows of a kernel table that share a law, a chunk of them.

    Attributes:
        law: its name.
        on_mma: whether they are made for older matrix units than the GPU's.
        rows: where they stand in the table.
        sizes: what the law is computed on.
    """

    law: str
    on_mma: bool
    rows: npt.NDArray[np.uint32]
    sizes: Sizes


@dataclass(frozen=True)
class Split:
    """A kernel table from `columns.prepare`, split by law; rows without one are in no part."""

    table: pl.DataFrame
    parts: tuple[Part, ...]


def split(table: pl.DataFrame) -> Split:
    """A table split by law."""
    known = table.with_row_index("row").filter(pl.col("law").is_not_null())
    chunks = [chunk for part in known.partition_by("law", "on_mma", maintain_order=True) for chunk in _chunks(part)]
    return Split(table, tuple(Part(c["law"][0], c["on_mma"][0], c["row"].to_numpy(), sizes(c)) for c in chunks))


def _chunks(part: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Rows in chunks of even length."""
    return part.iter_slices(math.ceil(part.height / math.ceil(part.height / CHUNK_ROWS)))


class Runs:
    """Kernels as they run on one GPU after the other; those of one class and with the same formats run them alike.

    Args:
        table: from `kernels.complete`.
    """

    def __init__(self, table: pl.DataFrame) -> None:
        self.table = table
        self._splits: dict[tuple[str | bool, ...], Split] = {}

    def on(self, gpu: Machine) -> Split:
        """The kernels as they run on a GPU."""
        key = (gpu.tensor_class, *formats(gpu.gpu))
        if key not in self._splits:
            self._splits[key] = split(as_run(self.table, gpu))
        return self._splits[key]


@dataclass(frozen=True)
class Modelled:
    """Model output, one element a row; NaN where the shape isn't known.

    Attributes:
        table: from `columns.prepare`.
        bound_us: nothing can be faster.
        time_us: predicted time.
        floor_us: the part that neither compute nor memory rates shorten.
        compute_us: arithmetic at the rate the kernel gets.
        memory_us: memory traffic at the rate the kernel gets.
        arithmetic: whether arithmetic takes longer than memory traffic. Of kernels that go through memory once only the
            peak rate counts: their law's compute time is that of their instructions and of the ports to the cache.
    """

    table: pl.DataFrame
    bound_us: Floats
    time_us: Floats
    floor_us: Floats
    compute_us: Floats
    memory_us: Floats
    arithmetic: Bools

    def limiter(self) -> pl.Series:
        """What the time mostly is: 'latency' where the floor outweighs both rates."""
        largest = np.fmax(self.compute_us, self.memory_us)
        which = np.where(self.floor_us > largest, 2, np.where(self.arithmetic, 0, 1))
        return pl.Series(LIMITERS).gather(np.where(np.isnan(self.time_us), 3, which))


def model(kernels: Split, gpu: Machine, weights: Weights) -> Modelled:
    """Times of a kernel table on a GPU.

    Args:
        kernels: as they run on this GPU.
        gpu: the GPU.
        weights: the fitted numbers.
    """
    names = ("bound_us", "time_us", "floor_us", "compute_us", "memory_us")
    out = {name: np.full(kernels.table.height, np.nan) for name in names}
    arithmetic = np.zeros(kernels.table.height, dtype=np.bool_)

    def fill(part: Part) -> None:
        terms, time_us = evaluate(part.sizes, part.law, gpu.on_mma if part.on_mma else gpu, weights)
        columns = part.sizes.on(gpu)
        bound = bound_us(part.law, columns, gpu)
        compute_us = terms.compute_us if on_matrix_units(part.law) else arithmetic_us(part.law, columns, gpu)
        arithmetic[part.rows] = compute_us >= terms.memory_us
        out["bound_us"][part.rows], out["time_us"][part.rows] = bound, np.maximum(time_us, bound)
        for name in ("floor_us", "compute_us", "memory_us"):
            out[name][part.rows] = getattr(terms, name)

    if kernels.table.height <= CHUNK_ROWS:
        for part in kernels.parts:
            fill(part)
    else:  # numpy lets go of the interpreter's lock, so threads help
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(fill, kernels.parts))
    return Modelled(kernels.table, **out, arithmetic=arithmetic)


def evaluate(rows: Sizes, law: str, gpu: Machine, weights: Weights) -> tuple[Terms, Floats]:
    """The law's terms and the time with the learned correction, for rows that share a law."""
    columns, terms = _law(rows, law, gpu, weights)
    twin = weights.twin(law, gpu)
    of_twin = (columns, terms) if twin is None else _law(rows, law, twin, weights)
    learned = np.zeros(rows.share.size)
    grown = weights.correction(law, gpu)
    if grown is not None:
        learned = grown.predict(features(law, rows.frameworks, *of_twin, twin or gpu))
    learned *= 1.0 if weights.learned_from(law, twin or gpu) else LAWS[law].travels
    correction = LAWS[law].correctable(terms) * learned
    own = weights.calibrated.get((law, gpu.slug))
    if own is not None:
        correction = (1 + own.trust) * correction
        if own.surface is not None:
            correction = correction + own.surface.at(coordinates(law, rows.frameworks, columns, terms, gpu))
        terms = _law(rows, law, gpu, weights, own.offset)[1]
    time_us = np.exp(np.log(terms.time_us) + correction)
    if twin is not None and own is None:
        there_us = of_twin[1].time_us * np.exp(LAWS[law].correctable(of_twin[1]) * learned)
        rate = columns["tflops"] / of_twin[0]["tflops"]
        least, most = gpu.share_of_time(twin, rate, law in EXPONENTIAL_LAWS)
        time_us = np.clip(time_us, there_us * least, there_us * most)
    return terms, time_us


def _law(
    rows: Sizes, law: str, gpu: Machine, weights: Weights, calibrated: Mapping[str, float] | None = None
) -> tuple[Columns, Terms]:
    columns = rows.on(gpu)
    return columns, LAWS[law].at(columns, rows.share, gpu, weights.law(law).constants(gpu, rows.frameworks, calibrated))
