"""Define the terms of a latency and how laws compute them: overlap, memory and cache traffic, waves, power."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.hardware import Hardware

Constants = Mapping[str, Floats | float]

UNKNOWN_BLOCK_COUNT = 1e9
"""Blocks of a kernel of which nobody knows how many: enough for any GPU."""
CYCLIC_CACHE_EXPONENT = 8.0
"""How sharply the cache's rate ends where what is read again and again outgrows the cache."""


class Tiles(NamedTuple):
    """How kernels are cut up, one element each.

    Attributes:
        tile_m: Rows of a tile; of attention, queries of a block.
        tile_n: Columns of a tile; NaN of attention.
        split_k: Parts that k, or the keys, are cut into.
        waves: Blocks over SMs: 1.2 are two rounds, the second of which a fifth of the SMs run.
        kept_ratio: How many times as long products would take with the traced tiles; NaN where unknown.
    """

    tile_m: Ints | Floats
    tile_n: Ints | Floats
    split_k: Ints | Floats
    waves: Floats
    kept_ratio: Floats | float = math.nan


@dataclass(frozen=True)
class LatencyTerms:
    """What a kernel's time is made of, in microseconds."""

    floor_us: Floats
    compute_us: Floats
    memory_us: Floats

    @property
    def body_us(self) -> Floats:
        """Compute and memory time, overlapped."""
        return combine_overlapped_us(self.compute_us, self.memory_us)

    @property
    def time_us(self) -> Floats:
        """Time of the whole kernel."""
        return self.floor_us + self.body_us


def combine_overlapped_us(*times_us: Floats) -> Floats:
    """Two or more resources used at once: a fourth-power mean, near their maximum."""
    return np.asarray(np.sqrt(np.sqrt(compute_overlap_power(*times_us))))


def compute_overlap_power(first_us: Floats, *others_us: Floats) -> Floats:
    """The fourth power of `overlap`, which is least where that is least."""
    total = np.square(np.square(first_us))
    for time_us in others_us:
        total = total + np.square(np.square(time_us))
    return np.asarray(total)


def compute_memory_us(x_bytes: Floats, gpu: Hardware, c: Constants) -> Floats:
    """Time to move `x_bytes`, the part of it that the last-level cache holds at the cache's rate."""
    return _compute_traffic_us(x_bytes, 1 / (1 + (x_bytes / (gpu.cache_bytes * c["cache_share"])) ** 3), gpu, c)


def compute_cyclic_us(x_bytes: Floats, gpu: Hardware, c: Constants) -> Floats:
    """The same of what is read from one end to the other, time and again: all of it stays in the cache, or none."""
    return _compute_traffic_us(
        x_bytes, 1 / (1 + (x_bytes / (gpu.usable_cache_bytes * c["cache_share"])) ** CYCLIC_CACHE_EXPONENT), gpu, c
    )


def _compute_traffic_us(x_bytes: Floats, hit: Floats, gpu: Hardware, c: Constants) -> Floats:
    memory_gbps = gpu.bandwidth_gbps * c["memory"]
    cache_gbps = np.maximum(gpu.cache_gbps * c["cache"], memory_gbps)
    gbps = memory_gbps + (cache_gbps - memory_gbps) * hit
    return np.asarray(x_bytes / gbps / 1e3)


def compute_sustained_clock(watts_per_tflops: Floats | float, enough: Floats | float) -> Floats:
    """Share of the boost clock that the board's power allows some arithmetic: min(1, (power / enough)^0.85), smooth."""
    x = (np.asarray(watts_per_tflops) / np.asarray(enough)) ** 0.85
    return np.asarray(x / (1 + x**6) ** (1 / 6))


def count_waves(ratio: Floats, c: Constants) -> Floats:
    """Rounds of blocks over the SMs: between their exact ratio and its ceiling, never below one."""
    least = np.maximum(ratio, 1.0)
    # exp(log) computes the power in half the time.
    return np.asarray(least * np.exp(c["quantised"] * np.log(np.ceil(ratio) / least)))


def select_rows(c: Constants, rows: slice) -> Constants:
    """The constants of some rows; one that all rows share is a number."""
    return {name: value[rows] if isinstance(value, np.ndarray) else value for name, value in c.items()}
