"""Kernel times at the ends of a prediction's interval."""

import numpy as np
import polars as pl

from predictors.intervals import total
from tracekit.arrays import Floats, Ints


def repeats(kernels: pl.DataFrame) -> Ints:
    """A number for each kernel that all its repeats share: those err alike."""
    return kernels.select(pl.struct("name", "op", "input_dims").rank("dense").cast(pl.Int64)).to_series().to_numpy()


def point_and_ends(times: pl.DataFrame, repeat: Ints) -> tuple[Floats, Floats, Floats]:
    """Kernel times to replay for the prediction and for the two ends of its interval, in microseconds.

    Errors of one GPU's kernels go together, so the ends move all kernels by the factor that the interval of their
    sum allows. Those of one network's collectives go together too, and are moved by their own.

    Args:
        times: The kernels' predicted times.
        repeat: As :func:`repeats` gives it; repeats of one kernel count as one.
    """
    point, low, high = (times[name].to_numpy() for name in ("time_us", "low_us", "high_us"))
    is_collective = (times["family"] == "collective").to_numpy()
    ends = point.copy(), point.copy()
    for part in (is_collective, ~is_collective):
        sums = [np.bincount(repeat[part], side[part]).astype(np.float64) for side in (point, low, high)]
        time, *reached = total(sums[0], sums[1], sums[2])
        for end, at in zip(ends, reached, strict=True):
            end[part] *= at / time if time else 1.0
    return point, *ends
