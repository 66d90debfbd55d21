"""Hardware numbers of several GPUs at once, one element for each pair of a GPU and a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Floats
from predictors.hardware import Hardware

_NUMBERS = (
    "sms", "clock_mhz", "bandwidth_gbps", "printed_bandwidth_gbps", "written_gbps", "cache_bytes", "usable_cache_bytes",
    "cache_gbps", "exponentials_per_clock", "watts_per_tflops", "vector_tflops", "max_threads_per_sm",
    "half_rate_accumulate", "shares_lanes",
)  # fmt: skip


@dataclass(frozen=True)
class HardwareRows:
    """Several GPUs as a law sees them: the numbers of ``Hardware``, one element per row.

    They share what chooses between formulas: vendor, class of matrix units and generation of convolution kernels.

    Attributes:
        tensor_class: Class of the matrix units of all of them.
        vendor: Vendor of all of them.
        fused_convolutions: Number of block shapes of cuDNN's fused convolutions on all of them.
    """

    tensor_class: str
    vendor: str
    fused_convolutions: int | None
    sms: Floats
    clock_mhz: Floats
    bandwidth_gbps: Floats
    printed_bandwidth_gbps: Floats
    written_gbps: Floats
    cache_bytes: Floats
    usable_cache_bytes: Floats
    cache_gbps: Floats
    exponentials_per_clock: Floats
    watts_per_tflops: Floats
    vector_tflops: Floats
    max_threads_per_sm: Floats
    half_rate_accumulate: Bools
    shares_lanes: Bools


GpuFigures = Hardware | HardwareRows
"""What a law is computed on: one GPU, or several with one element per row."""


def repeat_hardware(gpus: Sequence[Hardware], rows: int) -> GpuFigures:
    """Return the numbers of each GPU for so many rows, one GPU after the other; of a single GPU as it is.

    Args:
        gpus: GPUs that run kernels in the same formats on the same class of matrix units.
        rows: Number of rows of each.
    """
    first = gpus[0]
    if len(gpus) == 1:
        return first
    numbers = {name: np.repeat(np.array([getattr(gpu, name) for gpu in gpus]), rows) for name in _NUMBERS}
    return HardwareRows(first.tensor_class, first.vendor, first.fused_convolutions, **numbers)
