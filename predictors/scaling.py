"""Scale the measured times of kernels without a shape by the resource that limits their family.

Products go another way, see `predictors.without_shapes`, but for those that few SMs run.

The rules are those of the replay study's section "Unknown kernel". A fixed latency scales only with the clock. The rest
scales with the resource of the family. Kernels with fewer blocks than SMs gain from a faster SM, not from more SMs.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats, Ints
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


class MeasuredTimes:
    """Measured times of kernels of unknown shape, to carry to one GPU after the other.

    Args:
        table: Distinct kernels with ``family``, ``dtype``, ``indexed`` and ``blocks``.
        row: Row in ``table`` of each measurement.
        measured_us: Times on the source, above zero.
        source: GPU that they were measured on.
    """

    def __init__(self, table: pl.DataFrame, row: Ints, measured_us: Floats, source: Hardware) -> None:
        self._row, self._measured, self._source = row, measured_us, source
        self._fixed = np.minimum(measured_us, FIXED_LATENCY_CYCLES / source.clock_mhz)
        resource = CategoricalColumn.from_series(table["family"]).map(
            lambda family: FAMILY_RESOURCES.get(family or "", "memory")
        )
        self._on_matrix_units = resource == "tensor"
        self._streams = (resource == "memory") & ~table["indexed"].fill_null(False).to_numpy()
        self._blocks = table["blocks"].fill_null(np.inf).to_numpy()
        self._dtype = CategoricalColumn.from_series(table["dtype"])

    def scale(self, target: Hardware) -> Floats:
        """Return the times on a GPU, in microseconds."""
        return self._scale_beyond_latency(self._choose_ratio(self._compute_ratios(target), target), target)

    def scale_with_bracket(self, target: Hardware) -> tuple[Floats, Floats]:
        """Return the same, and the half-width, as a logarithm, of the range over the candidate resources."""
        ratios = self._compute_ratios(target)
        ratio = self._choose_ratio(ratios, target)
        candidates = np.log(np.stack(list(ratios.values())))
        bracket = np.maximum(candidates.max(axis=0) - np.log(ratio), np.log(ratio) - candidates.min(axis=0))
        bracket = np.where(self._fill_few_sms(target), 0.5, 1.0) * bracket
        return self._scale_beyond_latency(ratio, target), bracket[self._row] * (1 - self._fixed / self._measured)

    def _scale_beyond_latency(self, ratio: Floats, target: Hardware) -> Floats:
        clock = self._source.clock_mhz / target.clock_mhz
        return np.asarray(self._fixed * clock + (self._measured - self._fixed) * ratio[self._row])

    def _choose_ratio(self, ratios: dict[str, Floats], target: Hardware) -> Floats:
        """Return the ratio of the resource that each distinct kernel waits for."""
        mixed = np.sqrt(ratios["memory"] * ratios["vector"])
        ratio = np.where(self._on_matrix_units, ratios["tensor"], np.where(self._streams, ratios["memory"], mixed))
        return np.where(self._fill_few_sms(target), ratios["clock"], ratio)

    def _fill_few_sms(self, target: Hardware) -> Bools:
        return self._blocks < min(self._source.sms, target.sms)

    def _compute_ratios(self, target: Hardware) -> dict[str, Floats]:
        """Return how many times as long each resource takes on a GPU."""
        ones, source = np.ones(self._blocks.size), self._source
        clock = source.clock_mhz / target.clock_mhz
        waves = _compute_waves(self._blocks, target) / _compute_waves(self._blocks, source)
        return {
            "clock": ones * clock,
            "memory": ones * (source.bandwidth_gbps / target.bandwidth_gbps),
            "tensor": self._dtype.map(
                lambda d: source.get_tflops(d or DEFAULT_MATRIX_DTYPE) / target.get_tflops(d or DEFAULT_MATRIX_DTYPE)
            ),
            "vector": waves * clock,
        }


def _compute_waves(blocks: Floats, gpu: Hardware) -> Floats:
    """Rounds of blocks over the SMs, up to a constant; many or unknown blocks fill them evenly."""
    few = np.minimum(blocks, 1e9)
    return np.where(few < 16 * gpu.sms, np.ceil(few / gpu.sms), few / gpu.sms)
