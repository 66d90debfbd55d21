"""Lower the clock of a GPU that would draw more than the board's limit in a step.

The laws of kernels were fitted to runs of milliseconds, in which a board keeps its boost clock. It regulates its power
within tenths of a second, so in a job the mean over a step counts::

    |--- GEMM, 980 W ---|- norm, 700 W -|- CPU -|    mean 770 W, limit 700: matrix units take 1.04 times as long

Evidence, none of which was fitted to: the clocks that whole steps held on an H100 and an H200
(tests/validation/results/whole_jobs/held_clocks.md) and GEMMs that ran for a second on H200, B200 and GB200
(tests/validation/results/kernels/power_limit.md).
"""

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.arrays import Floats
from predictors.hardware import derive_hardware
from predictors.kernels import TENSOR_FAMILIES
from predictors.power import limit_power_w, load_power_law
from tracekit.arrays import Ints
from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.numbers import parse_quantity
from tracekit.prediction.energy import compute_idle_w
from tracekit.prediction.intervals import lengthen_times
from tracekit.replay.step_time import JobSteps

REGULATED_US = 2000.0
"""In the runs that the laws were fitted to, a kernel of this time is throttled by half as much as in a job: GEMMs of
0.1, 0.5, 2 and 8 ms took 1.18, 1.16, 1.08 and 1.04 times as long in runs of a second (aiconfigurator, H200)."""
VECTOR_DTYPES = ("fp32", "fp64")
"""Formats of the vector units, whose time was seen to stay at the limit."""
MAX_VECTOR_DEMAND = 1.15
"""Of kernels in these formats, as a fraction of the limit: fp32 GEMMs keep 94 % of their clock (`make on-gpu`,
H100)."""


def choose_slowdown(slowdown: Floats, place: Ints) -> pl.Series:
    """Return the slowdown of each kernel's GPU.

    Args:
        slowdown: By GPU of a rank; one for all.
        place: The GPU of each kernel among those of its rank.
    """
    return pl.Series(slowdown[np.minimum(place, slowdown.size - 1)])


def regulates_clock(gpu: Gpu) -> bool:
    """Whether it is known that a step's demand lowers the clock of a GPU."""
    return load_power_law().knows_clock_of(derive_hardware(gpu))


def average_by_gpu(job: JobSteps, demand_ns: Floats) -> Floats:
    """Average over the ranks what the median step demands of each GPU of a rank, in microseconds.

    Args:
        job: The steps.
        demand_ns: Of :meth:`tracekit.replay.step_time.StepTimer.sum_by_gpu`, for the rows of all ranks.
    """
    return np.array([job.compute_median_sum_us(of_gpu) for of_gpu in demand_ns])


def to_demands_ns(kernels: pl.DataFrame, gpu: Gpu) -> Ints:
    """Return what each kernel demands above idle power, in nanoseconds at the board's limit."""
    return np.rint(1e3 * compute_demands_us(kernels, gpu)).astype(np.int64)


def compute_demands_us(kernels: pl.DataFrame, gpu: Gpu) -> Floats:
    """Return what each kernel demands above idle power, in microseconds at the board's limit.

    Args:
        kernels: `dtype`, `runs_as`, `time_us` and `demand_w`; without a demand, that of a kernel of unknown work.
        gpu: The GPU.
    """
    law, time_us = load_power_law(), kernels["time_us"].to_numpy()
    nothing = np.full(time_us.size, np.nan)
    demand = kernels["demand_w"].to_numpy() / gpu.tdp_w
    demand = np.where(np.isnan(demand), law.compute_demand(nothing, nothing, time_us), demand)
    on_vector_units = kernels.select(_runs_on_vector_units())[:, 0].to_numpy()
    demand = np.where(on_vector_units, np.minimum(demand, MAX_VECTOR_DEMAND), demand)
    return np.asarray((demand - law.idle) * time_us)


def compute_target_slowdown(demand_us: float, step_us: float) -> float:
    """Return how many times as long a GPU's matrix units take in a step than at the boost clock.

    Args:
        demand_us: Of one GPU, with times at the boost clock, from `average_by_gpu`.
        step_us: Time of the step with these.
    """
    law = load_power_law()
    return float(law.compute_slowdown(np.array([law.idle + demand_us / step_us]), 1.0)[0]) if step_us else 1.0


def compute_source_slowdown(demand_us: float, step_us: float) -> float:
    """Return the same of a measured step, whose times hold the slowdown already."""
    law = load_power_law()
    return law.compute_traced_slowdown(law.idle + demand_us / step_us) if step_us else 1.0


def spread_slowdown(kernels: pl.DataFrame, slowdown: float | pl.Series) -> Floats:
    """Return each kernel's part of a slowdown: all of it of short kernels on the matrix units, none of most others.

    Args:
        kernels: `family`, `limiter`, `dtype`, `runs_as` and `time_us`.
        slowdown: Of the matrix units, of all kernels or of each.
    """
    on_matrix_units = pl.col("family").is_in(TENSOR_FAMILIES) & ~_runs_on_vector_units()
    slowed = (on_matrix_units & (pl.col("limiter") == "compute")).fill_null(value=False)
    more = (pl.lit(slowdown) - 1) / (1 + pl.col("time_us").fill_null(0.0) / REGULATED_US)
    return kernels.select(factor=1 + pl.when(slowed).then(more).otherwise(0.0))["factor"].to_numpy()


def _runs_on_vector_units() -> pl.Expr:
    return pl.coalesce("runs_as", "dtype").is_in(VECTOR_DTYPES).fill_null(value=False)


def change_clock(kernels: pl.DataFrame, factor: Floats, gpu: Gpu) -> pl.DataFrame:
    """Return the kernels with times of another clock; the whole effect is in the interval once more, as its error.

    Args:
        kernels: `time_us`, `low_us`, `high_us` and `demand_w`, which is higher the less time the same work takes.
        factor: On each time.
        gpu: The GPU.
    """
    idle_w = compute_idle_w(gpu)
    kernels = kernels.with_columns(
        factor=pl.Series(factor), demand_w=idle_w + (pl.col("demand_w") - idle_w) / pl.Series(factor)
    )
    return lengthen_times(kernels, "factor", pl.col("factor").log()).drop("factor")


CLOCK_OPTION, SOURCE_CLOCK_OPTION = "--clock", "--source-clock"
MHZ_PER_UNIT = {"mhz": 1.0, "ghz": 1000.0}
MIN_CLOCK_FRACTION = 0.1
"""Of the highest clock: drivers go down to 0.1 (210 of 1,980 MHz, H100)."""
ERROR_FRACTION = 0.3
"""Of what a clock changes, as a logarithm: the half-width of its 90 % interval. Nobody published kernels at several
clocks, so this is a guess: kernels that the model takes for bound by memory may wait for instructions in part."""


def parse_clock(clock: str | float | None, option: str = CLOCK_OPTION) -> float | None:
    """Parse a clock such as ``1200MHz`` or ``1.2 GHz``; a number is in MHz. ``None`` for the GPU's own.

    Args:
        clock: The clock.
        option: Which option it was given by.

    Raises:
        RequestError: It is no clock.
    """
    if clock is None:
        return None
    mhz = parse_quantity(str(clock), MHZ_PER_UNIT)
    if mhz is None:
        raise RequestError(messages.CLOCK_MALFORMED(option=option, clock=str(clock)))
    return mhz


def parse_source_clock(clock: str | float | None, gpu: Gpu | None) -> float | None:
    """Parse the clock of a trace's GPU.

    Raises:
        RequestError: It is no clock, or lower than that GPU runs.
    """
    mhz = parse_clock(clock, SOURCE_CLOCK_OPTION)
    if mhz is not None and gpu is not None:
        resolve_clock(mhz, gpu, SOURCE_CLOCK_OPTION)
    return mhz


def get_highest_mhz(gpu: Gpu) -> float:
    """Return the clock that a GPU keeps where power allows."""
    return max(derive_hardware(gpu).clock_mhz, gpu.vector_clock_mhz)


def resolve_clock(clock_mhz: float | None, gpu: Gpu, option: str = CLOCK_OPTION) -> float:
    """Return a clock as a fraction of a GPU's highest, at most 1.

    Raises:
        RequestError: It is lower than its driver allows.
    """
    highest = get_highest_mhz(gpu)
    least = MIN_CLOCK_FRACTION * highest
    if clock_mhz is not None and clock_mhz < least:
        raise RequestError(
            messages.CLOCK_TOO_LOW(option=option, gpu=gpu.slug, clock=clock_mhz, least=least, most=highest)
        )
    return 1.0 if clock_mhz is None else min(clock_mhz / highest, 1.0)


def apply_clock(times: pl.DataFrame, ratio: Floats, fraction: float, gpu: Gpu) -> pl.DataFrame:
    """Lengthen kernels to their times at a lower clock, and lower what they draw.

    Args:
        times: Kernels with `family`, their times, `power_w` and `demand_w`.
        ratio: How many times as long each takes.
        fraction: The clock, as a fraction of the highest.
        gpu: The GPU.

    Returns:
        The same with `clock_slowdown`, the factor on each time.
    """
    idle_w = compute_idle_w(gpu)
    demand = idle_w + (pl.col("demand_w") - idle_w) * load_power_law().compute_power_fraction(fraction)
    times = times.with_columns(
        clock_slowdown=pl.when(pl.col("family") != "collective").then(pl.Series(ratio)).fill_null(1.0), demand_w=demand
    )
    drawn = limit_power_w(times["demand_w"].to_numpy(), derive_hardware(gpu))
    times = times.with_columns(power_w=pl.Series(drawn, nan_to_null=True))
    return lengthen_times(times, "clock_slowdown", ERROR_FRACTION * pl.col("clock_slowdown").log())


MIN_CAP_FRACTION = 0.3
"""Of the board's limit: the lowest that drivers allow is 0.29 (200 of 700 W, H100) to 0.5 (150 of 300 W, A100 PCIe)."""


def parse_power_cap(cap: str | float | None) -> float | None:
    """Parse a power limit such as ``500W``; ``None`` for the board's own.

    Raises:
        RequestError: It is no power.
    """
    if cap is None:
        return None
    watts = parse_quantity(str(cap), {"w": 1.0})
    if watts is None:
        raise RequestError(messages.POWER_CAP_MALFORMED(power=str(cap)))
    return watts


def resolve_power_cap(cap_w: float | None, gpu: Gpu) -> float:
    """Return the limit of a GPU in watts, at most the board's own.

    Raises:
        RequestError: The limit is lower than its driver allows.
    """
    least_w = MIN_CAP_FRACTION * gpu.tdp_w
    if cap_w is not None and cap_w < least_w:
        raise RequestError(messages.POWER_CAP_TOO_LOW(gpu=gpu.slug, power=cap_w, least=least_w, most=gpu.tdp_w))
    return float(gpu.tdp_w if cap_w is None else min(cap_w, gpu.tdp_w))


def apply_power_cap(times: pl.DataFrame, cap_w: float, gpu: Gpu) -> pl.DataFrame:
    """Lengthen the kernels that draw more than a limit: the clock falls until they fit.

    Collectives wait for their links and keep their time.

    Args:
        times: Kernels with `family`, their times and `power_w`.
        cap_w: The limit.
        gpu: The GPU.

    Returns:
        The same with `slowdown`, the factor on each time.
    """
    law, draw = load_power_law(), times["power_w"].to_numpy() / gpu.tdp_w
    slowdown = pl.Series(law.compute_slowdown(draw, cap_w / gpu.tdp_w), nan_to_null=True)
    times = times.with_columns(
        slowdown=pl.when(pl.col("family") != "collective").then(slowdown).fill_null(1.0),
        power_w=pl.col("power_w").clip(upper_bound=cap_w),
    )
    return lengthen_times(times, "slowdown", pl.lit(law.cap_half_width))
