"""The roofs of the roofline plot: what each GPU can do at most."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from predictors import Gpu
from predictors.machine import machine
from tracekit.prediction import Prediction
from tracekit.replay.run import Run

LEAST_SHARE = 0.02
"""Precisions with less of the GPU time than this get no roof of their own."""


@dataclass(frozen=True, slots=True)
class Roof:
    """One GPU's limits.

    Attributes:
        gpu: Canonical name.
        measured: Whether it is the GPU of the trace.
        bandwidth_gbps: Of its memory.
        peak_tflops: Precision to dense peak, of a GeForce at its real clock, for the precisions that the step uses and
            the GPU has; highest first.
    """

    gpu: str
    measured: bool
    bandwidth_gbps: float
    peak_tflops: tuple[tuple[str, float], ...]


def build(run: Run, kernels: pl.DataFrame, targets: Sequence[Prediction]) -> tuple[Roof, ...]:
    """The roofs of the source GPU, if it is known, and of the targets."""
    dtypes = _dtypes(kernels)
    source = [_roof(run.gpu, dtypes, measured=True)] if run.gpu else []
    others = {target.gpu: target.target.gpu for target in targets if run.gpu is None or target.gpu != run.gpu.slug}
    return (*source, *(_roof(gpu, dtypes, measured=False) for gpu in others.values()))


def _dtypes(kernels: pl.DataFrame) -> list[str]:
    """The precisions that matter, most time first."""
    worked = kernels.filter(pl.col("work_flops") > 0).drop_nulls("dtype")
    times = worked.group_by("dtype").agg(pl.col("time_us").sum()).sort("time_us", "dtype", descending=[True, False])
    whole = float(times["time_us"].sum())
    return times.filter(pl.col("time_us") >= LEAST_SHARE * whole)["dtype"].to_list()


def _roof(gpu: Gpu, dtypes: Sequence[str], *, measured: bool) -> Roof:
    rates = machine(gpu)
    peaks = {dtype: rates.tflops(dtype) for dtype in dtypes if gpu.supports(dtype)}
    return Roof(gpu.slug, measured, gpu.bandwidth_gbps, tuple(sorted(peaks.items(), key=lambda item: -item[1])))
