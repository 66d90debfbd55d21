"""Kernels without a shape: the measured time scaled by the resource that their kind of kernel waits for.

Products go another way, see `predictors.equivalent`, but for those that few SMs run.

The rules are those of the replay study's section "Unknown kernel": a fixed latency first, which no rate shortens;
the rest by the resource of the family; fewer blocks than SMs gain from a faster SM, not from more of them.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.coded import Coded
from predictors.machine import Machine

FIXED_CYCLES = 3500.0
"""Clocks from a kernel's start to its end when it does next to nothing: about 2 us, on every GPU since Volta."""
RESOURCE = {"gemm": "tensor", "conv": "tensor", "attention": "tensor", "moe": "tensor", "other": "mixed"}
"""What a family waits for; the ones not named here wait for memory."""
UNTOLD = "fp16"
"""What matrix units are taken to multiply where neither a kernel's name nor its op's inputs tell: those are serving
engines' own kernels, of 16 bits or fewer. In fp32 an RTX 4090 would run a mixture of experts faster than an H100."""


def scaled(table: pl.DataFrame, row: Ints, measured: Floats, source: Machine, target: Machine) -> tuple[Floats, Floats]:
    """Measured times carried to another GPU without knowing the shape.

    Args:
        table: distinct kernels with `family`, `dtype` and `blocks`.
        row: of which of them each measurement is.
        measured: times on the source, in microseconds, above zero.
        source: where they were measured.
        target: where to.

    Returns:
        Times in microseconds, and the half-width of the bracket over the candidate resources, as a logarithm.
    """
    ratios = _ratios(table, source, target)
    family = Coded.of(table["family"]).map(lambda family: RESOURCE.get(family or "", "memory"))
    mixed = np.sqrt(ratios["memory"] * ratios["vector"])
    ratio = np.where(family == "tensor", ratios["tensor"], np.where(family == "memory", ratios["memory"], mixed))
    few = table["blocks"].fill_null(np.inf).to_numpy() < min(source.sms, target.sms)
    ratio = np.where(few, ratios["clock"], ratio)
    candidates = np.log(np.stack(list(ratios.values())))
    bracket = np.maximum(candidates.max(axis=0) - np.log(ratio), np.log(ratio) - candidates.min(axis=0))
    bracket = np.where(few, 0.5, 1.0) * bracket
    fixed = np.minimum(measured, FIXED_CYCLES / source.clock_mhz)
    time_us = fixed * source.clock_mhz / target.clock_mhz + (measured - fixed) * ratio[row]
    return time_us, bracket[row] * (1 - fixed / measured)


def _ratios(table: pl.DataFrame, source: Machine, target: Machine) -> dict[str, Floats]:
    ones = np.ones(table.height)
    blocks = table["blocks"].fill_null(np.inf).to_numpy()
    return {
        "clock": ones * (source.clock_mhz / target.clock_mhz),
        "memory": ones * (source.bandwidth_gbps / target.bandwidth_gbps),
        "tensor": Coded.of(table["dtype"]).map(lambda d: source.tflops(d or UNTOLD) / target.tflops(d or UNTOLD)),
        "vector": _waves(blocks, target) / _waves(blocks, source) * (source.clock_mhz / target.clock_mhz),
    }


def _waves(blocks: Floats, gpu: Machine) -> Floats:
    """Rounds of blocks over the SMs, up to a constant; many or unknown blocks fill them evenly."""
    few = np.minimum(blocks, 1e9)
    return np.where(few < 16 * gpu.sms, np.ceil(few / gpu.sms), few / gpu.sms)
