"""Compute 90 % intervals: their widths come from GPUs left out of the fit. Add intervals up in a sum."""

from __future__ import annotations

import math

import numpy as np

from predictors.arrays import Floats
from predictors.hardware import Hardware
from predictors.kernels import TENSOR_FAMILIES
from predictors.weights_file import Weights, are_limited_alike

SITUATIONS = ("base", "sibling", "class", "new")
"""How close the measurements of a law come to a GPU that was not calibrated, from near to far: the GPU itself, a
sibling, the same class of matrix units, none of these."""
CALIBRATED = "calibrated"
ENGINE, LIBRARY, NOTHING, NEW_RELEASE = TOLD_LEVELS = ("engine", "library", "nothing", "new release")
"""What a kernel's interval has on top, in squares, beside the situations' widths: where only its engine, its library or
no name is told, and where the engine's release is none of the fitted ones."""
TOLD_ALL = "release"
COMMON_ERROR_FRACTION = 0.4
"""How much of an interval's half-width is taken as common to all kernels on a GPU. With it 94 to 99 % of sums of 20
kernels lie inside their interval (tests/validation/results/kernels/by_family.md, coverage of sums); of the squared
error the GPU itself is a tenth, the rest goes by software and shape."""
UNCHANGED_HALF_WIDTH = 0.7
SCALED_HALF_WIDTH = 0.35
OTHER_VENDOR_HALF_WIDTH = 1.0
"""How far a scaled time may lie beyond what peaks allow on a GPU of another vendor, whose libraries reach less of them:
of GEMMs whose shapes had been taken away 96 % are inside, with 0.35 79 %
(tests/validation/results/kernels/hidden_shapes.md)."""


def classify_situation(law: str, gpu: Hardware, weights: Weights) -> str:
    """How close the measurements of a law come to a GPU: one of `SITUATIONS`, or 'calibrated'."""
    own = weights.calibrated.get((law, gpu.slug))
    if own is not None and own.gaussian_process is not None:
        return CALIBRATED
    measured = weights.get_law(law).well_measured
    if gpu.slug in measured:
        return "base"
    if weights.has_sibling(law, gpu):
        return "sibling"
    alike = (gpu.tensor_class == one.tensor_class and are_limited_alike(law, gpu, one) for one in measured.values())
    return "class" if any(alike) else "new"


def get_width_key(law: str, vendor: str) -> str:
    """What the widths of a law are kept under: those of NVIDIA's GPUs under its name."""
    return law if vendor == "nvidia" else f"{law} on {vendor}"


def get_carried_key(kinship: str, where: str, told: str) -> str:
    """What the width of a time carried from a relative is kept under, beside the situations' widths."""
    return f"{kinship} to {where}, {told} told"


def compute_half_width(
    law: str, gpu: Hardware, weights: Weights, told: str = TOLD_ALL, kinship: str | None = None
) -> float:
    """Half-width, as a logarithm, of the interval of one kernel predicted from its shape.

    Args:
        law: Law of the kernel.
        gpu: GPU that the kernel is predicted for.
        weights: Weights with the interval widths.
        told: What is told of the kernel's software: one of `TOLD_LEVELS`, or all.
        kinship: How the GPU that the kernel was measured on is related (``transfer.classify_kinship``); None without a
            measurement.
    """
    widths = weights.intervals.get(get_width_key(law, gpu.gpu.vendor), weights.intervals.get(law))
    where = classify_situation(law, gpu, weights)
    if widths is None:
        default = {"base": 0.35, CALIBRATED: 0.35, "sibling": 0.4, "class": 0.5, "new": 0.7}[where]
        return default + (0.1 if law.split(" ")[0] in TENSOR_FAMILIES else 0.0)
    carried = widths.get(get_carried_key(kinship, where, told)) if kinship else None
    if carried is not None:
        return carried
    # A calibration measures the software that will run.
    return widths[where] if where == CALIBRATED else math.hypot(widths[where], widths.get(told, 0.0))


def sum_with_interval(
    time_us: Floats, low_us: Floats, high_us: Floats, common_fraction: float = COMMON_ERROR_FRACTION
) -> tuple[float, float, float]:
    """The interval of a sum of kernels on one GPU.

    A GPU's own error (how close it runs to its datasheet) moves all its kernels together and adds up linearly. The rest
    is taken as independent between kernels and adds up in squares. Repeats of one kernel have the same error, so pass
    each distinct kernel once, with its times multiplied by its number of launches.

    Args:
        time_us: predicted times.
        low_us: lower ends of their intervals.
        high_us: upper ends.
        common_fraction: fraction of each half-width that is common to all kernels.

    Returns:
        Time, low and high of the sum, in microseconds.
    """
    time = float(np.sum(time_us))
    ends = []
    for end in (low_us, high_us):
        apart = np.abs(np.asarray(end) - np.asarray(time_us))
        together = common_fraction * np.sum(apart)
        alone = np.sqrt(1 - common_fraction**2) * np.sqrt(np.sum(apart**2))
        ends.append(float(np.hypot(together, alone)))
    return time, max(time - ends[0], 0.0), time + ends[1]
