"""Predict times of ops on a CPU: by its law, or from what they took on a CPU."""

from __future__ import annotations

import math

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.hardware import Hardware
from predictors.laws.cpu import compute_cpu_terms, compute_fault_us
from predictors.model import KernelsByLaw, KernelsOnGpus, ModelTimes
from predictors.result import METHOD_LAW, METHOD_MEASURED, METHOD_TRANSFER, METHOD_UNKNOWN, LaunchTimes
from predictors.work import compute_arithmetic_us, compute_bound_us, uses_matrix_units

LAW_HALF_WIDTH = math.log(1.8)
"""Half-width, as a logarithm, of the 90 % interval of an op's time by the law alone. A judgement."""
CARRIED_HALF_WIDTH = math.log(1.25)
"""The same of a time that was measured on the same CPU at another size. A judgement."""
OTHER_CPU_HALF_WIDTH = math.log(1.6)
"""The same of one measured on another CPU. A judgement."""
SHARED_FRACTION = 0.6
"""Of an op's error that ops of its family share."""
LEAST_MEASURED_US = 0.1


def evaluate_on_cpu(kernels: KernelsByLaw, cpu: Hardware) -> ModelTimes:
    """Return the times of kernels on a CPU by its law."""
    names = ("bound_us", "time_us", "floor_us", "compute_us", "memory_us")
    out = {name: np.full(kernels.height, np.nan) for name in names}
    arithmetic = np.zeros(kernels.height, dtype=np.bool_)
    for part in kernels.chunks:
        columns = part.inputs.to_columns(cpu)
        terms = compute_cpu_terms(part.law, columns, cpu)
        bound = compute_bound_us(part.law, columns, cpu)
        compute_us = terms.compute_us if uses_matrix_units(part.law) else compute_arithmetic_us(part.law, columns, cpu)
        arithmetic[part.rows] = compute_us >= terms.memory_us
        out["bound_us"][part.rows] = np.minimum(bound, terms.time_us)
        out["time_us"][part.rows] = terms.time_us + compute_fault_us(part.law, columns)
        for name in ("floor_us", "compute_us", "memory_us"):
            out[name][part.rows] = getattr(terms, name)
    return ModelTimes(kernels, **out, is_compute_bound=arithmetic)


def predict_on_cpu(
    runs: KernelsOnGpus, row: Ints, measured_us: Floats, source: Hardware | None, cpu: Hardware
) -> tuple[ModelTimes, LaunchTimes]:
    """Return the times of distinct kernels on a CPU by its law, and those of each launch.

    What was measured on a CPU scales by the law's ratio between the two, and keeps its time on the same one. What was
    measured on a GPU tells nothing of a CPU.

    Args:
        runs: The distinct kernels.
        row: The one that each launch is of.
        measured_us: What each launch took on the source; NaN where nobody knows.
        source: Where.
        cpu: The CPU.
    """
    alone = evaluate_on_cpu(runs.split_for_gpu(cpu), cpu)
    time, method = alone.time_us[row], np.full(row.size, METHOD_LAW)
    width = np.full(row.size, LAW_HALF_WIDTH)
    if source is not None and source.gpu.is_cpu:
        known = ~np.isnan(measured_us)
        there = evaluate_on_cpu(runs.split_for_gpu(source), source).time_us[row]
        same, measured = source.slug == cpu.slug, np.maximum(measured_us, LEAST_MEASURED_US)
        ratio = np.nan_to_num(time / there, nan=1.0)
        time = np.where(known, measured if same else measured * ratio, time)
        alike = source.slug.partition(":")[0] == cpu.slug.partition(":")[0]
        width = np.where(known, 0.0 if same else CARRIED_HALF_WIDTH if alike else OTHER_CPU_HALF_WIDTH, width)
        method = np.where(known, METHOD_MEASURED if same else METHOD_TRANSFER, method)
    method = np.where(np.isnan(time), METHOD_UNKNOWN, method)
    endless = np.full(row.size, np.nan)
    return alone, LaunchTimes(
        time, width, np.zeros(row.size), np.full(row.size, SHARED_FRACTION), method, endless, endless
    )
