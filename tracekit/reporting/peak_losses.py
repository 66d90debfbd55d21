"""Split the time of each matrix product into what its operations take at the GPU's peak, and what the rest goes to."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.hardware import derive_hardware
from predictors.power import load_power_law
from tracekit.prediction.clock import compute_source_slowdown, regulates_clock, spread_slowdown
from tracekit.workload.module_paths import OPTIMIZER

PRODUCT_FAMILIES = ("gemm", "conv", "attention", "moe", "linear_attention")
"""Families whose operations count: matrix products, which the peak is one of."""
BACKWARD_FACTOR = 2.0
"""Products of a backward pass over those of the forward pass: one for the inputs' gradient, one for the weights'. What
is beyond that is computed again (PaLM, arXiv:2204.02311, appendix B)."""
BYTES_PER_GB = 1e3
"""Bytes in a microsecond for each GB/s."""
WIDE_DTYPES = ("fp32", "tf32")
"""Formats that a network's products usually don't need: their operations count at the 16-bit peak."""

PRODUCTS, RECOMPUTED, UPDATE, PRECISION, MEMORY, WAVES, POWER, SLOW = PARTS = (
    "products", "recomputed", "products of the update", "wide formats", "memory-bound products", "part waves",
    "power limit", "slow products",
)  # fmt: skip
"""Parts of products' time, which add up to it; the first three are operations at the peak."""
AT_PEAK = PARTS[:3]


def split_products(kernels: pl.DataFrame, gpu: Gpu, step_us: float, per_step: int, *, has_phases: bool) -> pl.DataFrame:
    """Return a step's kernels with the parts of their times, 0 of those that aren't products.

    Example: a product takes 100 µs, 50 at its peak in TF32, which is half of that in 16 bit; its last round of tiles
    fills a quarter of the SMs after three whole ones. It has 25 µs of ``products``, 25 of ``wide formats``, 50 x (4 /
    3.25 - 1) = 11.5 of ``part waves`` and 38.5 of ``slow products``.

    Args:
        kernels: ``family``, ``phase``, ``dtype``, ``runs_as``, ``work_flops``, ``work_bytes``, ``time_us``, ``limiter``
            and ``waves``.
        gpu: The GPU that they run on.
        step_us: Time of a step.
        per_step: Number of steps, times GPUs, that the kernels are of.
        has_phases: Whether the phases are known, which tell what is computed again.
    """
    counts = pl.col("family").is_in(PRODUCT_FAMILIES) & (pl.col("work_flops") > 0)
    rate, rate_at_16_bit = (pl.Series(column) for column in _list_rates(kernels, gpu))
    flops, time = pl.when(counts).then("work_flops").otherwise(0.0), pl.col("time_us")
    bound = kernels.with_columns(
        at_peak=pl.min_horizontal(flops / rate, time),
        products=pl.min_horizontal(flops / pl.max_horizontal(rate, rate_at_16_bit), time),
        at_memory=pl.min_horizontal(pl.col("work_bytes").fill_null(0.0) / (gpu.bandwidth_gbps * BYTES_PER_GB), time),
        slowdown=_compute_slowdown(kernels, gpu, step_us, per_step),
    )
    floor = pl.max_horizontal("at_peak", "at_memory")
    waste = (pl.col("waves").ceil() / pl.col("waves") - 1).fill_null(0.0).fill_nan(0.0)
    in_waves = pl.min_horizontal(time - floor, pl.col("at_peak") * waste)
    by_power = pl.min_horizontal(time - floor - in_waves, time * (1 - 1 / pl.col("slowdown")))
    split = bound.with_columns(
        pl.when(counts).then(part).otherwise(0.0).alias(name)
        for name, part in {
            PRODUCTS: pl.col("products"),
            PRECISION: pl.col("at_peak") - pl.col("products"),
            MEMORY: floor - pl.col("at_peak"),
            WAVES: in_waves,
            POWER: by_power,
            SLOW: time - floor - in_waves - by_power,
        }.items()
    )
    return _tell_recomputed(split, has_phases=has_phases).drop("at_peak", "at_memory", "slowdown")


def _list_rates(kernels: pl.DataFrame, gpu: Gpu) -> Iterator[np.ndarray]:
    """Yield each kernel's peak in operations a microsecond, and that in 16 bit of those in a wide format, else 0."""
    hardware = derive_hardware(gpu)
    dtypes = kernels.select(pl.coalesce("runs_as", "dtype"))[:, 0]
    half = max(hardware.get_tflops("bf16"), hardware.get_tflops("fp16")) * 1e6
    rates = {dtype: hardware.get_tflops(dtype) * 1e6 for dtype in dtypes.unique()}
    yield dtypes.replace_strict(rates, return_dtype=pl.Float64).to_numpy()
    yield np.where(dtypes.is_in(WIDE_DTYPES).fill_null(value=False).to_numpy(), half, 0.0)


def _compute_slowdown(kernels: pl.DataFrame, gpu: Gpu, step_us: float, per_step: int) -> pl.Series:
    """Return how many times as long each kernel takes than without the board's power limit."""
    if not regulates_clock(gpu):
        return pl.repeat(1.0, kernels.height, eager=True)
    law, time_us = load_power_law(), kernels["time_us"].to_numpy()
    peak, memory = next(_list_rates(kernels, gpu)), gpu.bandwidth_gbps * BYTES_PER_GB
    with np.errstate(divide="ignore", invalid="ignore"):
        flops, moved = (kernels[name].to_numpy() / time_us for name in ("work_flops", "work_bytes"))
        demand = law.compute_demand(flops / peak, moved / memory, time_us)
    above_us = float(np.nansum((demand - law.idle) * time_us)) / per_step
    return pl.Series(spread_slowdown(kernels, compute_source_slowdown(above_us, step_us)))


def _tell_recomputed(split: pl.DataFrame, *, has_phases: bool) -> pl.DataFrame:
    """Return the parts with what backward passes compute again, and optimizers multiply, apart from ``products``."""
    summed = {phase: pl.col(PRODUCTS).filter(phase=phase).sum().over("family") for phase in ("forward", "backward")}
    beyond = (1 - BACKWARD_FACTOR * summed["forward"] / summed["backward"]).clip(0.0, 1.0)
    is_again = (pl.col("phase") == "backward") & has_phases
    again = pl.when(is_again).then(beyond.fill_nan(0.0) * pl.col(PRODUCTS)).otherwise(0.0)
    updates = pl.when(phase=OPTIMIZER).then(PRODUCTS).otherwise(0.0)
    told = split.with_columns(again.alias(RECOMPUTED), updates.alias(UPDATE))
    return told.with_columns((pl.col(PRODUCTS) - pl.col(RECOMPUTED) - pl.col(UPDATE)).alias(PRODUCTS))
