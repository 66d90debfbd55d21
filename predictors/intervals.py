"""90 % intervals: widths from GPUs left out, and how they add up in a sum."""

from __future__ import annotations

import math

import numpy as np

from predictors.arrays import Floats
from predictors.fitted import Weights
from predictors.kernels import TENSOR_FAMILIES
from predictors.machine import Machine

SITUATIONS = ("base", "sibling", "class", "new")
"""From near to far, where nothing was calibrated."""
CALIBRATED = "calibrated"
STACK = "stack"
"""Beside the situations' widths: what a kernel has on top whose framework isn't named, added in squares."""
GPU_SHARE = 0.6
"""How much of an interval's half-width is the GPU's own error, common to all kernels on it (study: about half)."""
KEPT = 0.7
SCALED = 0.35


def situation(law: str, gpu: Machine, weights: Weights) -> str:
    """How close the measurements of a law come to a GPU: one of `SITUATIONS`, or 'calibrated'."""
    own = weights.calibrated.get((law, gpu.slug))
    if own is not None and own.surface is not None:
        return CALIBRATED
    measured = weights.law(law).well_measured
    if gpu.slug in measured:
        return "base"
    if weights.has_sibling(law, gpu):
        return "sibling"
    return "class" if any(gpu.tensor_class == other.tensor_class for other in measured.values()) else "new"


def of_vendor(law: str, vendor: str) -> str:
    """What the widths of a law are kept under: those of NVIDIA's GPUs under its name."""
    return law if vendor == "nvidia" else f"{law} on {vendor}"


def half_width(law: str, gpu: Machine, weights: Weights, named: bool = True) -> float:
    """Half-width, as a logarithm, of the interval of one kernel predicted from its shape.

    Args:
        law: its law.
        gpu: where it is predicted.
        weights: hold the widths.
        named: whether the kernel's framework is known.
    """
    widths = weights.intervals.get(of_vendor(law, gpu.gpu.vendor), weights.intervals.get(law))
    where = situation(law, gpu, weights)
    if widths is None:
        default = {"base": 0.35, CALIBRATED: 0.35, "sibling": 0.4, "class": 0.5, "new": 0.7}[where]
        return default + (0.1 if law.split(" ")[0] in TENSOR_FAMILIES else 0.0)
    # What a calibration measured is of the stack that will run.
    unsure = not named and where != CALIBRATED
    return math.hypot(widths[where], widths.get(STACK, 0.0)) if unsure else widths[where]


def total(time_us: Floats, low_us: Floats, high_us: Floats, gpu_share: float = GPU_SHARE) -> tuple[float, float, float]:
    """The interval of a sum of kernels on one GPU.

    A GPU's own error (how close it runs to its datasheet) moves all its kernels together and adds up linearly;
    the rest is taken as independent between kernels and adds up in squares. Repeats of one kernel err together, so
    give each distinct kernel once, its times multiplied by how often it runs.

    Args:
        time_us: predicted times.
        low_us: lower ends of their intervals.
        high_us: upper ends.
        gpu_share: share of each half-width that is common to all kernels.

    Returns:
        Time, low and high of the sum, in microseconds.
    """
    time = float(np.sum(time_us))
    ends = []
    for end in (low_us, high_us):
        apart = np.abs(np.asarray(end) - np.asarray(time_us))
        together = gpu_share * np.sum(apart)
        alone = np.sqrt(1 - gpu_share**2) * np.sqrt(np.sum(apart**2))
        ends.append(float(np.hypot(together, alone)))
    return time, max(time - ends[0], 0.0), time + ends[1]
