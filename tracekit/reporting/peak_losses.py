"""Split the time of each matrix product into what its operations take at the GPU's peak, and what the rest goes to."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.hardware import derive_hardware
from predictors.power import load_power_law
from tracekit.arrays import Bools, DistinctNames, Floats
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


def split_products(
    kernels: pl.DataFrame, gpu: Gpu, step_us: float, per_step: int, *, has_phases: bool
) -> dict[str, Floats]:
    """Return the parts of the time of each of a step's kernels, 0 of those that aren't products.

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
    time, flops, moved, waves = (kernels[name].to_numpy() for name in ("time_us", "work_flops", "work_bytes", "waves"))
    family, phase = (DistinctNames.from_column(kernels[name]) for name in ("family", "phase"))
    counts = _mark(family, PRODUCT_FAMILIES) & (flops > 0)
    rate, rate_at_16_bit = _list_rates(kernels, gpu)
    with np.errstate(divide="ignore", invalid="ignore"):
        at_peak = np.minimum(flops / rate, time)
        products = np.minimum(flops / np.maximum(rate, rate_at_16_bit), time)
        at_memory = np.minimum(np.nan_to_num(moved) / (gpu.bandwidth_gbps * BYTES_PER_GB), time)
        waste = np.nan_to_num(np.ceil(waves) / waves - 1)
        floor = np.fmax(at_peak, at_memory)
        in_waves = np.minimum(time - floor, at_peak * waste)
    slowdown = _compute_slowdown(kernels, gpu, rate, step_us, per_step)
    by_power = np.minimum(time - floor - in_waves, time * (1 - 1 / slowdown))
    counted = np.where(counts, products, 0.0)
    again = _count_recomputed(family, phase, counted) if has_phases else np.zeros(time.size)
    updates = np.where(_mark(phase, (OPTIMIZER,)), counted, 0.0)
    parts = {
        PRODUCTS: products - again - updates,
        RECOMPUTED: again,
        UPDATE: updates,
        PRECISION: at_peak - products,
        MEMORY: floor - at_peak,
        WAVES: in_waves,
        POWER: by_power,
        SLOW: time - floor - in_waves - by_power,
    }
    return {part: np.where(counts, of_part, 0.0) for part, of_part in parts.items()}


def _list_rates(kernels: pl.DataFrame, gpu: Gpu) -> tuple[Floats, Floats]:
    """Return each kernel's peak in operations a microsecond, and that in 16 bit of those in a wide format, else 0."""
    hardware = derive_hardware(gpu)
    dtypes = DistinctNames.from_column(kernels.select(pl.coalesce("runs_as", "dtype", pl.lit("")))[:, 0])
    half = max(hardware.get_tflops("bf16"), hardware.get_tflops("fp16")) * 1e6
    rates = [hardware.get_tflops(dtype or None) * 1e6 for dtype in dtypes.names]
    return (
        np.array(rates, np.float64)[dtypes.number],
        np.array([half * (dtype in WIDE_DTYPES) for dtype in dtypes.names], np.float64)[dtypes.number],
    )


def _compute_slowdown(kernels: pl.DataFrame, gpu: Gpu, peak: Floats, step_us: float, per_step: int) -> Floats:
    """Return how many times as long each kernel takes than without the board's power limit."""
    if not regulates_clock(gpu):
        return np.ones(kernels.height)
    law, time_us = load_power_law(), kernels["time_us"].to_numpy()
    memory = gpu.bandwidth_gbps * BYTES_PER_GB
    with np.errstate(divide="ignore", invalid="ignore"):
        flops, moved = (kernels[name].to_numpy() / time_us for name in ("work_flops", "work_bytes"))
        demand = law.compute_demand(flops / peak, moved / memory, time_us)
    above_us = float(np.nansum((demand - law.idle) * time_us)) / per_step
    return spread_slowdown(kernels, compute_source_slowdown(above_us, step_us))


def _count_recomputed(family: DistinctNames, phase: DistinctNames, products: Floats) -> Floats:
    """Return what of each product backward passes compute again, by family."""
    is_backward = _mark(phase, ("backward",))
    forward, backward = (
        np.bincount(family.number, np.where(of_phase, products, 0.0), len(family.names))
        for of_phase in (_mark(phase, ("forward",)), is_backward)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = np.nan_to_num(np.clip(1 - BACKWARD_FACTOR * forward / backward, 0.0, 1.0))
    return np.where(is_backward, beyond[family.number] * products, 0.0)


def _mark(column: DistinctNames, wanted: Sequence[str]) -> Bools:
    return np.array([name in wanted for name in column.names], np.bool_)[column.number]
