"""What the model misses of all kernels of one law and software stack on the GPU that they were measured on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.model import KernelsByLaw

STACK = ("law", "named")
"""What tells a stack: its law, and whether its software is named."""
PSEUDO_COUNT = 4.0
"""A stack's offset is trusted like this many kernels' worth of measurements says zero."""
MAX_LAW_LOG_ERROR = math.log(2.0)
"""Beyond a factor of two the law doesn't describe the kernel; what goes beyond is carried over whole."""


@dataclass(frozen=True)
class KernelErrors:
    """What the model misses of kernels on their source.

    Attributes:
        table: ``law``, ``named`` and ``error`` of each measured kernel: the logarithm of measured over modelled time,
            within ``MAX_LAW_LOG_ERROR``.
        calibrated: The same where the model is calibrated for the source; None without calibrations.
        has_calibrated: Whether calibrations say something of these kernels on the source, and on the target.
    """

    table: pl.DataFrame
    calibrated: pl.DataFrame | None
    has_calibrated: tuple[bool, bool]


@dataclass(frozen=True)
class StackErrors:
    """What the model misses of stacks on their source, of a job whose kernels are predicted in parts.

    Attributes:
        medians: ``law``, ``named``, ``median`` of the errors of all the job's kernels, and ``count`` of these.
        is_calibrated: Whether the errors are those of the model calibrated for the source.
    """

    medians: pl.DataFrame
    is_calibrated: bool = False


def tabulate_errors(kernels: KernelsByLaw, row: Ints, log_ratio: Floats) -> pl.DataFrame:
    """Tabulate the errors of measured kernels, as in :class:`KernelErrors`.

    Args:
        kernels: Distinct kernels as they run on the source.
        row: Which of them each measurement is of.
        log_ratio: log(measured / modelled); NaN where there is no measurement.
    """
    known = ~np.isnan(log_ratio)
    error = clip_errors(log_ratio[known])
    return _list_stacks(kernels)[row[known]].hstack([pl.Series("error", error)])


def clip_errors(log_ratio: Floats) -> Floats:
    """Return what of errors the law describes."""
    return np.clip(log_ratio, -MAX_LAW_LOG_ERROR, MAX_LAW_LOG_ERROR)


def compute_medians(errors: pl.DataFrame) -> pl.DataFrame:
    """Compute the median error and the count of each stack, from what :func:`tabulate_errors` returns."""
    return errors.group_by(STACK).agg(median=pl.col("error").median(), count=pl.len())


def compute_stack_offsets(kernels: KernelsByLaw, medians: pl.DataFrame) -> Floats:
    """Return the part of the errors that each distinct kernel shares with its stack; 0 where nothing is known.

    Args:
        kernels: Distinct kernels as they run on the source.
        medians: Of :func:`compute_medians`.
    """
    count = medians["count"].to_numpy()
    shrunk = medians["median"].to_numpy() * (count / (count + PSEUDO_COUNT))
    found = np.zeros(kernels.height)
    for law, named, offset in zip(medians["law"], medians["named"], shrunk, strict=True):
        found[kernels.law.is_in(law) & (kernels.is_of_stack == named)] = offset
    return found


def _list_stacks(kernels: KernelsByLaw) -> pl.DataFrame:
    return pl.DataFrame([kernels.table["law"], pl.Series("named", kernels.is_of_stack)])
