"""Scale the measured times of kernels without a shape by the resource that limits their family.

Products go another way, see `predictors.without_shapes`, but for those that few SMs run.

The rules are those of the replay study's section "Unknown kernel". A fixed latency scales only with the clock. The rest
scales with the resource of the family. Kernels with fewer blocks than SMs gain from a faster SM, not from more SMs.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.categorical import CategoricalColumn
from predictors.hardware import Hardware

FIXED_LATENCY_CYCLES = 3500.0
"""Clocks from a kernel's start to its end when it does next to nothing: about 2 us, on every GPU since Volta."""
FAMILY_RESOURCES = {
    **dict.fromkeys(("gemm", "conv", "attention", "moe"), "tensor"),
    **dict.fromkeys(("linear_attention", "other"), "mixed"),
}
"""What a family waits for; the ones not named here wait for memory. Of these, kernels that work out where each element
lies wait for memory or for instructions: PyTorch's ``cat`` of caches of keys and values reaches 1 TB/s on an H100, and
takes as long on an H200."""
DEFAULT_MATRIX_DTYPE = "fp16"
"""What matrix units are taken to multiply where neither a kernel's name nor its op's inputs tell: those are serving
engines' own kernels, of 16 bits or fewer. In fp32 an RTX 4090 would run a mixture of experts faster than an H100."""


def scale_measured_times(
    table: pl.DataFrame, row: Ints, measured: Floats, source: Hardware, target: Hardware
) -> tuple[Floats, Floats]:
    """Measured times carried to another GPU without knowing the shape.

    Args:
        table: Distinct kernels with ``family``, ``dtype``, ``indexed`` and ``blocks``.
        row: Row in ``table`` of each measurement.
        measured: Times on the source, in microseconds, above zero.
        source: GPU that they were measured on.
        target: GPU to scale to.

    Returns:
        Times in microseconds, and the half-width, as a logarithm, of the range over the candidate resources.
    """
    ratios = _compute_resource_ratios(table, source, target)
    resource = CategoricalColumn.from_series(table["family"]).map(
        lambda family: FAMILY_RESOURCES.get(family or "", "memory")
    )
    streams = (resource == "memory") & ~table["indexed"].fill_null(False).to_numpy()
    mixed = np.sqrt(ratios["memory"] * ratios["vector"])
    ratio = np.where(resource == "tensor", ratios["tensor"], np.where(streams, ratios["memory"], mixed))
    few = table["blocks"].fill_null(np.inf).to_numpy() < min(source.sms, target.sms)
    ratio = np.where(few, ratios["clock"], ratio)
    candidates = np.log(np.stack(list(ratios.values())))
    bracket = np.maximum(candidates.max(axis=0) - np.log(ratio), np.log(ratio) - candidates.min(axis=0))
    bracket = np.where(few, 0.5, 1.0) * bracket
    fixed = np.minimum(measured, FIXED_LATENCY_CYCLES / source.clock_mhz)
    time_us = fixed * source.clock_mhz / target.clock_mhz + (measured - fixed) * ratio[row]
    return time_us, bracket[row] * (1 - fixed / measured)


def _compute_resource_ratios(table: pl.DataFrame, source: Hardware, target: Hardware) -> dict[str, Floats]:
    ones = np.ones(table.height)
    blocks = table["blocks"].fill_null(np.inf).to_numpy()
    return {
        "clock": ones * (source.clock_mhz / target.clock_mhz),
        "memory": ones * (source.bandwidth_gbps / target.bandwidth_gbps),
        "tensor": CategoricalColumn.from_series(table["dtype"]).map(
            lambda d: source.get_tflops(d or DEFAULT_MATRIX_DTYPE) / target.get_tflops(d or DEFAULT_MATRIX_DTYPE)
        ),
        "vector": _compute_waves(blocks, target)
        / _compute_waves(blocks, source)
        * (source.clock_mhz / target.clock_mhz),
    }


def _compute_waves(blocks: Floats, gpu: Hardware) -> Floats:
    """Rounds of blocks over the SMs, up to a constant; many or unknown blocks fill them evenly."""
    few = np.minimum(blocks, 1e9)
    return np.where(few < 16 * gpu.sms, np.ceil(few / gpu.sms), few / gpu.sms)
