"""Estimate the energy of a step: what the GPU draws while kernels run, and in between."""

from dataclasses import dataclass, replace
from math import exp, hypot, log

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.hardware import derive_hardware
from predictors.power import UNKNOWN_WORK_HALF_WIDTH, load_power_law
from tracekit.arrays import Ints, find_nulls
from tracekit.program import Program
from tracekit.replay.step_time import StepTime


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """Energy of a step on one GPU of the job, and its mean power; neither is more than the board's limit allows.

    Attributes:
        joules: Energy.
        low_joules: Lower end of its 90 % interval.
        high_joules: Upper end.
        power_w: Mean power of the board over the step, in watts.
        low_w: Lower end of its 90 % interval.
        high_w: Upper end.
        limit_w: Power limit of the board.
    """

    joules: float
    low_joules: float
    high_joules: float
    power_w: float
    low_w: float
    high_w: float
    limit_w: float

    def lengthen(self, factor: float) -> "StepEnergy":
        """Return the energy of a step so many times as long, at the same power."""
        longer = {name: factor * getattr(self, name) for name in ("joules", "low_joules", "high_joules")}
        return replace(self, **longer)


@dataclass(frozen=True, slots=True)
class KernelEnergy:
    """What the kernels of a median step draw.

    Attributes:
        power_w: Above idle power on average while any runs, in watts; where they overlap, their draws add up.
        half_width: Half-width, as a logarithm, of the 90 % interval of the step's power.
    """

    power_w: float
    half_width: float


def sum_kernel_energy(program: Program, kernels: pl.DataFrame, replayed: StepTime, gpu: Gpu) -> KernelEnergy:
    """Sum what the kernels of a median step draw above idle power.

    Args:
        program: The program.
        kernels: `time_us`, `power_w` and `bound_us` of each of its kernels; without a power, they draw what kernels of
            unknown work do on average.
        replayed: The median step of that program with these times.
        gpu: The GPU.
    """
    drawn_mj, total_us, unknown_us = (
        program.step_timer.compute_median_sum_us(one) for one in list_kernel_energies(kernels, gpu)
    )
    return average_kernel_energy(drawn_mj, total_us, unknown_us, replayed, gpu)


def list_kernel_energies(kernels: pl.DataFrame, gpu: Gpu) -> tuple[Ints, Ints, Ints]:
    """List what each kernel draws above idle power in microjoules, its time, and that of unknown work; nanoseconds.

    Arguments as for :func:`sum_kernel_energy`.
    """
    law, time_ns, watts = load_power_law(), kernels["time_us"].to_numpy() * 1e3, kernels["power_w"].to_numpy()
    nothing = np.full(watts.size, np.nan)
    watts = np.where(np.isnan(watts), gpu.tdp_w * law.compute_draw(nothing, nothing, time_ns / 1e3), watts)
    above_w = np.fmax(watts - compute_idle_w(gpu), 0.0)
    unknown = np.where(find_nulls(kernels["bound_us"]), time_ns, 0.0)
    drawn, time, of_unknown = (np.rint(one).astype(np.int64) for one in (above_w * time_ns / 1e3, time_ns, unknown))
    return drawn, time, of_unknown


def average_kernel_energy(
    drawn_mj: float, total_us: float, unknown_us: float, replayed: StepTime, gpu: Gpu
) -> KernelEnergy:
    """Average the power of a median step's kernels.

    Args:
        drawn_mj: What they draw above idle power, in millijoules.
        total_us: Their time.
        unknown_us: That of kernels of unknown work.
        replayed: As for :func:`sum_kernel_energy`.
        gpu: The GPU.
    """
    known = load_power_law().get_half_width(derive_hardware(gpu).architecture)
    half_width = hypot(known, UNKNOWN_WORK_HALF_WIDTH * unknown_us / total_us if total_us else 0.0)
    return KernelEnergy(1e3 * drawn_mj / replayed.kernel_time_us if replayed.kernel_time_us else 0.0, half_width)


def estimate_step_energy(
    kernels: KernelEnergy, step: StepTime, ends_us: tuple[float, float], gpu: Gpu, limit_w: float
) -> StepEnergy:
    """Estimate the energy of a step.

    For example, kernels draw 400 W above 130 W of idle power in 8 of 10 ms: 130 W x 10 ms + 400 W x 8 ms = 4.5 J, and
    450 W on average.

    Args:
        kernels: What its kernels draw.
        step: The step.
        ends_us: Ends of the interval of its time.
        gpu: The GPU.
        limit_w: Its power limit.
    """
    idle_w, half_width, step_us = compute_idle_w(gpu), kernels.half_width, step.step_time_us
    busy = min(step.kernel_time_us / step_us, 1.0) if step_us else 0.0
    power_w = idle_w + min(kernels.power_w, limit_w - idle_w) * busy
    joules, low_us, high_us = power_w * step_us / 1e6, *ends_us
    # The errors of time and power are independent.
    low, high = (hypot(half_width, log(end / step_us)) if step_us and end else half_width for end in ends_us)
    return StepEnergy(
        joules=joules,
        low_joules=min(max(joules * exp(-low), idle_w * low_us / 1e6), joules),
        high_joules=max(min(joules * exp(high), limit_w * high_us / 1e6), joules),
        power_w=power_w,
        low_w=max(power_w * exp(-half_width), idle_w),
        high_w=min(power_w * exp(half_width), limit_w),
        limit_w=limit_w,
    )


def compute_idle_w(gpu: Gpu) -> float:
    """Return the power of a board between the kernels of a job, in watts."""
    return load_power_law().idle * gpu.tdp_w
