"""Roofs of the roofline plot: the limits of each GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from predictors import Gpu
from predictors.hardware import derive_hardware
from tracekit.arrays import IN_ORDER
from tracekit.prediction import Prediction
from tracekit.run import MeasuredRun

MIN_DTYPE_FRACTION = 0.02
"""Fraction of the GPU time below which a precision gets no roof of its own."""


@dataclass(frozen=True, slots=True)
class Roof:
    """The limits of one GPU.

    Attributes:
        gpu: Canonical name.
        measured: Whether it is the GPU of the trace.
        bandwidth_gbps: Memory bandwidth.
        peak_tflops: Dense peak by precision, for precisions that the step uses and the GPU supports, highest first;
            for a GeForce at its real clock.
    """

    gpu: str
    measured: bool
    bandwidth_gbps: float
    peak_tflops: tuple[tuple[str, float], ...]


def build_roofs(run: MeasuredRun, kernels: pl.DataFrame, targets: Sequence[Prediction]) -> tuple[Roof, ...]:
    """Build the roofs of the source GPU, if known, and of the targets."""
    dtypes = _list_dtypes(kernels)
    source = [_build_roof(run.gpu, dtypes, measured=True)] if run.gpu else []
    others = {target.gpu: target.target.gpu.gpu for target in targets if run.gpu is None or target.gpu != run.gpu.slug}
    return (*source, *(_build_roof(gpu, dtypes, measured=False) for gpu in others.values()))


def _list_dtypes(kernels: pl.DataFrame) -> list[str]:
    """List the precisions with enough time, most time first."""
    worked = kernels.lazy().filter(pl.col("work_flops") > 0, pl.col("dtype").is_not_null())
    times = worked.group_by("dtype").agg(pl.col("time_us").sum()).sort("time_us", "dtype", descending=[True, False])
    found = dict(times.collect(engine=IN_ORDER).iter_rows())
    return [dtype for dtype, time_us in found.items() if time_us >= MIN_DTYPE_FRACTION * sum(found.values())]


def _build_roof(gpu: Gpu, dtypes: Sequence[str], *, measured: bool) -> Roof:
    rates = derive_hardware(gpu)
    peaks = {dtype: rates.get_tflops(dtype) for dtype in dtypes if gpu.supports(dtype)}
    return Roof(gpu.slug, measured, gpu.bandwidth_gbps, tuple(sorted(peaks.items(), key=lambda item: -item[1])))
