"""A GPU left out of a fit on which a few kernels are measured: which ones, and what there is to learn from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.calibrate import calibrate, constants_of, observe
from predictors.fitted import Weights
from predictors.surface import Spread
from predictors.training.fit import LawFit, Measured, kernel_us
from predictors.training.fit_spread import Block

CALIBRATION_ROWS = 30
"""Kernels of one framework that a GPU left out is calibrated with."""
CANDIDATES = 300
"""Shapes of a framework that these are chosen from."""
BLOCK_ROWS, LEAST_BLOCK_ROWS = 60, 20
"""Kernels of a framework that tell how far a GPU left out is off."""
SHORTEST_US = {"graph": 20.0, "eager": 200.0, "trace": 2.0, "published": float("inf")}
"""Shorter kernels are left out of scores: eager times have 10 to 40 us of launch in them, old traces count whole us.
Published ones are too few for a GPU to tell its errors."""
LAUNCHES = 4
"""An eager time that isn't so many of its GPU's launches long is left out too: cuDNN's take 0.1 to 0.8 ms at random."""


def shortest_us(launch_us: float) -> pl.Expr:
    """Measured times up to which kernels are left out of scores, by their `source`.

    Args:
        launch_us: what eager measurements have on top of the kernel.
    """
    usual = pl.col("source").replace_strict(SHORTEST_US, return_dtype=pl.Float64)
    return pl.when(pl.col("source") == "eager").then(usual.clip(LAUNCHES * launch_us)).otherwise(usual)


def blocks(fitted: LawFit, launches: LawFit, part: Measured) -> list[Block]:
    """How far a GPU left out is off on its training shapes, a block for each framework."""
    found = []
    for _, rows in _frameworks(part, launches):
        some = _spread_out(rows.filter(pl.col("latency_us") > pl.col("shortest_us")), BLOCK_ROWS)
        if some.height >= LEAST_BLOCK_ROWS:
            found.append(Block.of(fitted.law, observe(fitted.law, some, part.machine, fitted.weights)))
    return found


def calibrated(fitted: LawFit, launches: LawFit, part: Measured) -> Iterator[tuple[str | None, Weights]]:
    """Each framework, and weights calibrated with a few of its training shapes on a GPU left out."""
    for framework, rows in _frameworks(part, launches):
        known = chosen(rows, part, fitted)
        if known.height >= CALIBRATION_ROWS:
            yield framework, calibrate(known, part.machine.gpu, fitted.weights)


def chosen(rows: pl.DataFrame, part: Measured, fitted: LawFit) -> pl.DataFrame:
    """The kernels to measure, chosen by their shapes alone: those that tell most about all the others.

    One after the other is taken that leaves the smallest expected error, summed over shapes that are predicted to
    take long enough to be scored.
    """
    some = _spread_out(rows, 4 * CANDIDATES)
    observed = observe(fitted.law, some.with_columns(measured_us=1.0), part.machine, fitted.weights)
    long = np.flatnonzero(-observed.missed > some["shortest_us"].log().to_numpy())[:CANDIDATES]
    spread = fitted.weights.spread(fitted.law)
    sd = spread.sd(constants_of(fitted.law))
    return some[long[most_telling(Block.of(fitted.law, observed), spread, sd, CALIBRATION_ROWS, long)]]


def most_telling(block: Block, spread: Spread, sd: Floats, count: int, among: Ints) -> list[int]:
    """Which of some kernels to measure: greedily those after which the rest's standard deviations add up to least.

    Args:
        block: kernels; how far they were missed is not looked at.
        spread: what is expected of them.
        sd: the same of each offset.
        count: how many to choose.
        among: which of the kernels there are to choose from.

    Returns:
        Positions in `among`.
    """
    places, slopes = block.places[:, among], block.slopes[among]
    left = spread.alike(places, places) + (slopes * sd**2) @ slopes.T
    taken: list[int] = []
    for _ in range(min(count, left.shape[0])):
        variance = np.diag(left)
        after = variance[:, None] - left**2 / (variance + spread.noise**2)
        total = np.sqrt(np.maximum(after, 0.0)).sum(axis=0)
        total[taken] = np.inf
        taken.append(int(total.argmin()))
        left = left - np.outer(left[:, taken[-1]], left[taken[-1]]) / (variance[taken[-1]] + spread.noise**2)
    return taken


def _frameworks(part: Measured, launches: LawFit) -> Iterator[tuple[str | None, pl.DataFrame]]:
    launch = launches.launches.get(part.gpu, 0.0)
    for (framework,), rows in part.shapes(test=False).table.group_by("framework", maintain_order=True):
        yield framework, rows.with_columns(shortest_us=shortest_us(launch), measured_us=kernel_us(rows, launch))


def _spread_out(rows: pl.DataFrame, count: int) -> pl.DataFrame:
    """At most so many rows, evenly over all, which are in the order of their shapes' numbers."""
    return rows.gather_every(max(rows.height // count, 1)).head(count)
