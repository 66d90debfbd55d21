"""Compute kernel times at the low and the high end of a prediction's interval."""

import numpy as np
import polars as pl

from predictors.result import sum_with_interval
from tracekit.arrays import Bools, Floats, mark_equal

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


def compute_end_factors(time_ps: Floats, low_ps: Floats, high_ps: Floats, *, known_bias: float) -> tuple[float, float]:
    """Compute the factors on all times of one GPU or network at the ends of the interval of their sum.

    Whoever adds up the same times in another order, or in parts, gets the same factors, bit for bit.

    Args:
        time_ps: Time of all repeats of each kernel, in whole picoseconds.
        low_ps: Likewise the lower ends of their intervals.
        high_ps: The upper ends.
        known_bias: A factor that lies in the interval.
    """
    order = np.lexsort((high_ps, low_ps, time_ps))
    order = order[high_ps[order] > 0]
    time_us, low_us, high_us = (side[order] / PS_PER_US for side in (time_ps, low_ps, high_ps))
    time, low, high = sum_with_interval(time_us, low_us, high_us)
    lower, upper = (low / time, high / time) if time else (1.0, 1.0)
    return min(lower, known_bias), max(upper, known_bias)
