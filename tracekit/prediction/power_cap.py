"""Predict kernel times under a power limit below the board's own."""

import polars as pl

from predictors import Gpu
from predictors.power import load_power_law
from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.numbers import parse_quantity
from tracekit.prediction.intervals import lengthen_times

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
