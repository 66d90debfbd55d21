"""Predict kernel times at a lower clock than a GPU's own, and read what clock a trace's GPU had."""

import polars as pl

from predictors import Gpu
from predictors.arrays import Floats
from predictors.hardware import derive_hardware
from predictors.power import limit_power_w, load_power_law
from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.numbers import parse_quantity
from tracekit.prediction.energy import compute_idle_w
from tracekit.prediction.intervals import lengthen_times

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
