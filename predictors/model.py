"""The model alone: kernel table and GPU -> times and what limits them, without any measurement of the kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import polars as pl

from predictors.columns import law_columns
from predictors.features import features
from predictors.fitted import Weights
from predictors.law import LAWS, Array, Columns, Terms
from predictors.machine import Machine
from predictors.roofline import with_bound
from predictors.surface import coordinates

CHUNK_ROWS = 16384  # so that a chunk's columns stay in the CPU's cache
THREADS = min(os.cpu_count() or 1, 4)


@dataclass(frozen=True)
class Modelled:
    """Model output, one element a row; NaN where the shape isn't known.

    Attributes:
        table: from `columns.prepare`, with the bounds.
        time_us: predicted time.
        floor_us: the part that neither compute nor memory rates shorten.
        compute_us: arithmetic at the rate the kernel gets.
        memory_us: memory traffic at the rate the kernel gets.
    """

    table: pl.DataFrame
    time_us: Array
    floor_us: Array
    compute_us: Array
    memory_us: Array

    def limiter(self) -> pl.Series:
        """What the time mostly is: 'latency' where the floor outweighs both rates."""
        largest = np.fmax(self.compute_us, self.memory_us)
        name = np.where(
            self.floor_us > largest, "latency", np.where(self.compute_us >= self.memory_us, "compute", "memory")
        )
        return pl.Series(np.where(np.isnan(self.time_us), "unknown", name))


def model(table: pl.DataFrame, gpu: Machine, weights: Weights) -> Modelled:
    """Times of a prepared kernel table on a GPU.

    Args:
        table: from `columns.prepare` for this GPU.
        gpu: the GPU.
        weights: the fitted numbers.
    """
    table = with_bound(table, gpu)
    # A trace repeats its kernels step by step and layer by layer: each distinct one is worked out once.
    alike = table.drop("measured_us").hash_rows().to_numpy()
    _, first, again = np.unique(alike, return_index=True, return_inverse=True)
    distinct = _distinct(table[first].with_row_index("row"), gpu, weights)
    times = {name: values[again] for name, values in distinct.items()}
    times["time_us"] = np.maximum(times["time_us"], table["bound_us"].to_numpy())
    return Modelled(table, **times)


def _distinct(table: pl.DataFrame, gpu: Machine, weights: Weights) -> dict[str, Array]:
    out = {name: np.full(table.height, np.nan) for name in ("time_us", "floor_us", "compute_us", "memory_us")}

    def fill(chunk: pl.DataFrame) -> None:
        rows = chunk["row"].to_numpy()
        terms, out["time_us"][rows] = evaluate(chunk, chunk["law"][0], gpu, weights)
        for name in ("floor_us", "compute_us", "memory_us"):
            out[name][rows] = getattr(terms, name)

    parts = table.filter(pl.col("law").is_not_null()).partition_by("law", maintain_order=True)
    chunks = [chunk for part in parts for chunk in part.iter_slices(CHUNK_ROWS)]
    if table.height <= CHUNK_ROWS:
        for chunk in chunks:
            fill(chunk)
        return out
    # numpy lets go of the interpreter's lock, so threads help.
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(fill, chunks))
    return out


def evaluate(chunk: pl.DataFrame, law: str, gpu: Machine, weights: Weights) -> tuple[Terms, Array]:
    """The law's terms and the time with the learned correction, for rows that share a law."""
    columns, terms = _law(chunk, law, gpu, weights)
    correction = np.zeros(chunk.height)
    if corrections := weights.trees(law, gpu):
        twin = weights.twin(law, gpu)
        x = features(law, chunk, columns, terms, gpu)
        if twin is not None:
            x = features(law, chunk, *_law(chunk, law, twin, weights), twin)
        correction = LAWS[law].correctable(terms) * sum(trees.predict(x) for trees in corrections)
    own = weights.calibrated.get((law, gpu.slug))
    if own is not None:
        terms = _law(chunk, law, gpu, weights, own.offset)[1]
        if own.surface is not None:
            correction = correction + own.surface.at(coordinates(law, columns))
    return terms, np.exp(np.log(terms.time_us) + correction)


def _law(
    chunk: pl.DataFrame, law: str, gpu: Machine, weights: Weights, calibrated: Mapping[str, float] | None = None
) -> tuple[Columns, Terms]:
    columns = law_columns(chunk, gpu)
    frameworks = chunk["framework"].to_numpy().astype(object)
    terms = LAWS[law].terms(columns, gpu, weights.law(law).constants(gpu, frameworks, calibrated))
    return columns, scale(terms, chunk["share"].to_numpy())


def scale(terms: Terms, share: Array) -> Terms:
    """Terms of a kernel that does a share of its op's work; the floor is its own."""
    return Terms(terms.floor_us, terms.compute_us * share, terms.memory_us * share)
