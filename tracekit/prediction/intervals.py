"""Compute kernel times at the low and the high end of a prediction's interval."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from predictors.kernels import REQUIRED_COLUMNS
from predictors.result import SHARED_ERROR_FRACTION, sum_with_interval
from tracekit.arrays import Bools, Floats, Ints, mark_equal
from tracekit.replay.engine import UnknownTimes
from tracekit.replay.step_time import StepTime

PS_PER_US = 1e6
"""Sums of whole picoseconds don't depend on the order."""
KEPT_COLLECTIVE_FACTOR = 3.2
"""How many times as long a collective that is kept as measured may take on another GPU with its links: all of a vLLM
job's took 24 ms on H100s and 76 on MI300X's."""


def lengthen_times(times: pl.DataFrame, factor: str, half_width: pl.Expr) -> pl.DataFrame:
    """Multiply times by a factor whose error widens their intervals; those with a factor of 1 stay as they are.

    Args:
        times: ``time_us``, ``low_us``, ``high_us`` and the factors.
        factor: Column of the factors.
        half_width: Half-width, as a logarithm, of the 90 % interval of each factor, independent of that of the time.
    """
    time, changed = pl.col("time_us") * pl.col(factor), pl.col(factor) != 1
    ends = {
        end: time * (side * ((pl.col(end) / pl.col("time_us")).log() ** 2 + half_width**2).sqrt()).exp()
        for end, side in {"low_us": -1.0, "high_us": 1.0}.items()
    }
    return times.with_columns(
        time_us=time, **{end: pl.when(changed).then(moved).otherwise(end) for end, moved in ends.items()}
    )


def find_kept_collectives(times: pl.DataFrame) -> Bools:
    """Find the collectives that are kept as measured."""
    return mark_equal(times["family"], "collective") & mark_equal(times["method"], "kept")


class KernelSums(NamedTuple):
    """Times of all repeats of each kernel, in whole picoseconds, one element each.

    Attributes:
        time_ps: The likely time.
        low_ps: The lower end of its interval.
        high_ps: The upper end.
        shared_ps: The part of the likely time that is missed as others of its family are (`shared_error`).
        family: Number of the family, from 0.
    """

    time_ps: Floats
    low_ps: Floats
    high_ps: Floats
    shared_ps: Floats
    family: Ints


def number_families() -> pl.Expr:
    """Number a kernel table's families; what has none, or an unknown one, is 0."""
    numbers = {family: number for number, family in enumerate(REQUIRED_COLUMNS, 1)}
    return pl.col("family").replace_strict(numbers, default=0, return_dtype=pl.Int64)


def compute_end_factors(sums: KernelSums, *, known_bias: float) -> tuple[float, float]:
    """Compute the factors on all times of one GPU or network at the ends of the interval of their sum.

    Whoever adds up the same times in another order, or in parts, gets the same factors, bit for bit.

    Args:
        sums: Times of the kernels.
        known_bias: A factor that lies in the interval.
    """
    order = np.lexsort((sums.shared_ps, sums.family, sums.high_ps, sums.low_ps, sums.time_ps))
    order = order[sums.high_ps[order] > 0]
    time_us, low_us, high_us, shared_us = (side[order] / PS_PER_US for side in sums[:4])
    shared = np.divide(shared_us, time_us, out=np.full(time_us.size, SHARED_ERROR_FRACTION), where=time_us > 0)
    time, low, high = sum_with_interval(time_us, low_us, high_us, np.minimum(shared, 1.0), sums.family[order])
    lower, upper = (low / time, high / time) if time else (1.0, 1.0)
    return min(lower, known_bias), max(upper, known_bias)


def combine_ends(
    likely: float, effects: Sequence[tuple[float, float]], shortest: float | None = None
) -> tuple[float, float]:
    """Combine the ends of a step's interval from what is unknown of it, where the parts are independent of one another.

    Of two parts, the ends lie on an ellipse, of which the axes and the diagonal are asked: where kernels and CPU pace
    the step in turn, neither alone shortens it, but both do.

    Example: 10 ms that another host may make 8 or 13 ms, and other kernel times 9 or 11 ms, may be
    10 / exp(hypot(log(10/8), log(10/9))) = 7.8 to 10 exp(hypot(log(13/10), log(11/10))) = 13.2 ms. Where each alone
    leaves 10 ms but both make it 8, it may be 10 / exp(log(10/8) / sqrt(2)) = 8.5 ms.

    Args:
        likely: The likely time.
        effects: For each part the times with its low and its high end; a step that the CPU paces may be shorter the
            longer the kernels of the one before took.
        shortest: The time with the low end of all parts; None where they have their ends together.
    """
    low, high = (pick((likely, *(pick(one) for one in effects))) for pick in (min, max))
    if low <= 0 or len(effects) == 1:
        return low, high
    below, above = (math.hypot(*(math.log(pick((likely, *one)) / likely) for one in effects)) for pick in (min, max))
    if shortest:
        below = max(below, math.log(likely / shortest) / math.sqrt(len(effects)))
    return likely * math.exp(-below), likely * math.exp(above)


def combine_step_ends(
    likely: StepTime, effects: Sequence[tuple[StepTime, StepTime]], shortest: StepTime | None
) -> tuple[float, float]:
    """Combine the ends of the median step's interval as :func:`combine_ends` does."""
    ends_us = [(low.step_time_us, high.step_time_us) for low, high in effects]
    return combine_ends(likely.step_time_us, ends_us, shortest.step_time_us if shortest else None)


def bound_mean_step(
    likely: StepTime,
    effects: Sequence[tuple[StepTime, StepTime]],
    shortest: StepTime | None,
    likely_us: float,
    ends_us: tuple[float, float],
) -> tuple[float, float]:
    """Return the ends of the mean step's interval: those of its replays, moved as the median step's were.

    Example: replays whose medians are 8, 10 and 13 ms and whose means are 12, 15 and 20 ms; the median's interval was
    widened from 8 and 13 to 7 and 15 ms. The mean's is 12 x 7/8 = 10.5 to 20 x 15/13 = 23.1 ms.

    Args:
        likely: The step with the likely times.
        effects: The step with the low and the high end of each part that is unknown, as of :func:`combine_ends`.
        shortest: The step with the low end of all, likewise.
        likely_us: The mean step.
        ends_us: Ends of the median step's interval.
    """
    medians = combine_step_ends(likely, effects, shortest)
    of_mean = shortest.mean_us if shortest else None
    means = combine_ends(likely.mean_us, [(low.mean_us, high.mean_us) for low, high in effects], of_mean)
    low, high = (
        mean * (end / median if median else 1.0) for mean, median, end in zip(means, medians, ends_us, strict=True)
    )
    return min(low, likely_us), max(high, likely_us)


def list_unknown_times(ratio: float, *, is_same_gpu: bool) -> tuple[UnknownTimes, UnknownTimes, UnknownTimes]:
    """Return the likely, the low and the high factors on time of unknown origin.

    Work that isn't recorded likely scales like the recorded kernels, a gap likely stays. Either may be anything from no
    time at all to all of it; where kernels take longer, to as much longer.

    Args:
        ratio: Predicted over measured time of the recorded kernels.
        is_same_gpu: Whether the target is the trace's own GPU, on which all of it was measured.
    """
    likely, most = UnknownTimes(unrecorded=ratio), max(ratio, 1.0)
    if is_same_gpu:
        return likely, likely, likely
    return likely, UnknownTimes(0.0, 0.0), UnknownTimes(most, most)


def divide_sums(predicted_ps: int, measured_ps: int) -> float:
    """Divide sums of kernel times in whole picoseconds; 1 without any measured time."""
    return predicted_ps / measured_ps if measured_ps else 1.0
