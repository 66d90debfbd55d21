"""Kernel times at the ends of a prediction's interval."""

import numpy as np
import numpy.typing as npt
import polars as pl

from predictors.intervals import total

Array = npt.NDArray[np.float64]


def point_and_ends(times: pl.DataFrame) -> tuple[Array, Array, Array]:
    """Kernel times to replay for the prediction and for the two ends of its interval, in microseconds.

    Errors of one GPU's kernels go together, so the ends move all kernels by the factor that the interval of their
    sum allows. Those of one network's collectives go together too, and are moved by their own.
    """
    time_us = times["time_us"].to_numpy()
    low_us, high_us = time_us.copy(), time_us.copy()
    is_collective = (times["family"] == "collective").to_numpy()
    for part in (is_collective, ~is_collective):
        low, high = _factors(times.filter(part))
        low_us[part] *= low
        high_us[part] *= high
    return time_us, low_us, high_us


def _factors(times: pl.DataFrame) -> tuple[float, float]:
    """Ends of the interval of a sum of kernels, over the sum. Repeats of one kernel err alike and count as one."""
    repeats = times.group_by("name", "op", "input_dims").agg(pl.col("time_us", "low_us", "high_us").sum())
    time, low, high = total(repeats["time_us"].to_numpy(), repeats["low_us"].to_numpy(), repeats["high_us"].to_numpy())
    return (low / time, high / time) if time else (1.0, 1.0)
