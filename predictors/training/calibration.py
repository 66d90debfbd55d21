"""Choose kernels to calibrate a GPU that was left out of a fit, and collect its errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.calibrate import calibrate, compare_with_predictions, get_offset_sds
from predictors.gaussian_process import ErrorSpread
from predictors.kernel_identity import IDENTITY_COLUMNS
from predictors.training.fit import LawFit, LawMeasurements, subtract_launch_us
from predictors.training.fit_spread import ErrorBlock
from predictors.weights_file import Weights

CALIBRATION_KERNELS = 30
"""Kernels of one framework that a GPU left out is calibrated with."""
MAX_CANDIDATE_SHAPES = 300
"""Shapes of a framework that these are chosen from."""
MAX_BLOCK_ROWS, MIN_BLOCK_ROWS = 60, 20
"""Kernels of a library, engine and release that tell how far a GPU left out is off."""
MIN_SCORED_US = {"graph": 20.0, "tuned": 10.0, "eager": 200.0, "trace": 2.0, "published": float("inf")}
"""Shorter kernels are left out of scores: eager times have 10 to 40 us of launch in them, old traces count whole us.
Published ones are too few for a GPU to tell its errors."""
MIN_LAUNCH_MULTIPLE = 4
"""An eager time that isn't so many of its GPU's launches long is left out too: cuDNN's take 0.1 to 0.8 ms at random."""


def build_min_scored_us(launch_us: float) -> pl.Expr:
    """Measured times up to which kernels are left out of scores, by their `source`.

    Args:
        launch_us: Launch time that eager measurements contain beside the kernel.
    """
    usual = pl.col("source").replace_strict(MIN_SCORED_US, return_dtype=pl.Float64)
    return pl.when(pl.col("source") == "eager").then(usual.clip(MIN_LAUNCH_MULTIPLE * launch_us)).otherwise(usual)


def build_error_blocks(fitted: LawFit, launches: LawFit, part: LawMeasurements) -> list[ErrorBlock]:
    """How far a GPU left out is off on its training shapes, a block for each library, engine and release."""
    found = []
    for _, rows in prepare_candidates(part, launches).group_by(IDENTITY_COLUMNS, maintain_order=True):
        some = _subsample_evenly(rows.filter(pl.col("latency_us") > pl.col("shortest_us")), MAX_BLOCK_ROWS)
        if some.height >= MIN_BLOCK_ROWS:
            found.append(
                ErrorBlock.from_observations(
                    fitted.law, compare_with_predictions(fitted.law, some, part.hardware, fitted.weights)
                )
            )
    return found


def calibrate_frameworks(
    fitted: LawFit, launches: LawFit, part: LawMeasurements
) -> Iterator[tuple[str | None, Weights]]:
    """Each framework, and weights calibrated with a few of its training shapes on a GPU left out."""
    for framework, rows in _iterate_frameworks(part, launches):
        known = choose_kernels(rows, part, fitted)
        if known.height >= CALIBRATION_KERNELS:
            yield framework, calibrate(known, part.hardware.gpu, fitted.weights)


def choose_kernels(rows: pl.DataFrame, part: LawMeasurements, fitted: LawFit) -> pl.DataFrame:
    """The kernels to measure, chosen by their shapes alone: those that tell most about all the others.

    Greedily choose the kernel that leaves the smallest expected error, summed over shapes whose predicted time is long
    enough to be scored.
    """
    some = _subsample_evenly(rows, 4 * MAX_CANDIDATE_SHAPES)
    observed = compare_with_predictions(fitted.law, some.with_columns(measured_us=1.0), part.hardware, fitted.weights)
    long = np.flatnonzero(-observed.log_errors > some["shortest_us"].log().to_numpy())[:MAX_CANDIDATE_SHAPES]
    spread = fitted.weights.get_spread(fitted.law)
    sd = get_offset_sds(fitted.law, observed, spread)
    block = ErrorBlock.from_observations(fitted.law, observed, sd.size)
    return some[long[select_most_informative(block, spread, sd, CALIBRATION_KERNELS, long)]]


def select_most_informative(block: ErrorBlock, spread: ErrorSpread, sd: Floats, count: int, among: Ints) -> list[int]:
    """Which of some kernels to measure: greedily those after which the rest's standard deviations add up to least.

    Args:
        block: Kernels; their errors are not used.
        spread: Expected errors.
        sd: Standard deviation of each offset.
        count: Number of kernels to select.
        among: Indices of the candidates.

    Returns:
        Positions in ``among``.
    """
    places, slopes = block.coordinates[:, among], block.jacobian[among]
    left = spread.compute_covariance(places, places) + (slopes * sd**2) @ slopes.T
    taken: list[int] = []
    for _ in range(min(count, left.shape[0])):
        variance = np.diag(left)
        after = variance[:, None] - left**2 / (variance + spread.noise**2)
        total = np.sqrt(np.maximum(after, 0.0)).sum(axis=0)
        total[taken] = np.inf
        taken.append(int(total.argmin()))
        left = left - np.outer(left[:, taken[-1]], left[taken[-1]]) / (variance[taken[-1]] + spread.noise**2)
    return taken


def prepare_candidates(part: LawMeasurements, launches: LawFit) -> pl.DataFrame:
    """Training shapes of a GPU left out, with `measured_us`, and `shortest_us`, up to which they aren't scored."""
    launch = launches.launch_us.get(part.gpu, 0.0)
    rows = part.select_shapes(test=False).table
    return rows.with_columns(shortest_us=build_min_scored_us(launch), measured_us=subtract_launch_us(rows, launch))


def _iterate_frameworks(part: LawMeasurements, launches: LawFit) -> Iterator[tuple[str | None, pl.DataFrame]]:
    table = prepare_candidates(part, launches).with_columns(release=pl.lit(None, pl.Float64))
    for (framework,), rows in table.group_by("framework", maintain_order=True):
        yield framework, rows


def _subsample_evenly(rows: pl.DataFrame, count: int) -> pl.DataFrame:
    """At most so many rows, evenly over all, which are in the order of their shapes' numbers."""
    return rows.gather_every(max(rows.height // count, 1)).head(count)
