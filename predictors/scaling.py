"""Scale the measured times of kernels without a shape by the resource that limits their family.

Products go another way, see `predictors.without_shapes`, but for those that few SMs run.

The rules are those of the replay study's section "Unknown kernel". A fixed latency scales only with the clock. The rest
scales with the resource of the family, in the dtype that the kernel runs in on each GPU. Kernels on few SMs gain from a
faster SM, not from more SMs. None gains or loses more than the resource of a whole GPU that differs most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.categorical import CategoricalColumn
from predictors.hardware import Hardware
from predictors.precision import get_format_key, resolve_dtype
from predictors.work import compare_element_bytes

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

MAX_FEW_SMS_FRACTION = 0.5
"""A kernel with blocks on fewer SMs than this is one of few blocks. One of more may have as many as the GPU has SMs but
for those that it leaves to others, as 112 of 132 where communication takes 20: elsewhere it has more or fewer."""
WHOLE_GPU_RESOURCES = ("memory", "tensor", "all SMs", "fp32", "cache")


class ScaledTimes(NamedTuple):
    """Times on a target, in microseconds.

    Attributes:
        time_us: Most likely time.
        half_width: Half-width, as a logarithm, of the range over the candidate resources.
        least_us: Time by the resource that differs most in the target's favour, at most what was measured.
        most_us: Time by the one that differs most to its disadvantage, at least what was measured.
    """

    time_us: Floats
    half_width: Floats
    least_us: Floats
    most_us: Floats


class MeasuredTimes:
    """Measured times of kernels of unknown shape, to carry to one GPU after the other.

    Args:
        table: Distinct kernels with ``family``, ``dtype``, ``framework``, ``tensor_core``, ``indexed`` and ``blocks``.
        row: Row in ``table`` of each measurement.
        measured_us: Times on the source, above zero.
        source: GPU that they were measured on.
    """

    def __init__(self, table: pl.DataFrame, row: Ints, measured_us: Floats, source: Hardware) -> None:
        self._table = table.with_columns(pl.col("dtype").fill_null(DEFAULT_MATRIX_DTYPE))
        self._row, self._measured, self._source = row, measured_us, source
        self._fixed = np.minimum(measured_us, FIXED_LATENCY_CYCLES / source.clock_mhz)
        resource = CategoricalColumn.from_series(table["family"]).map(
            lambda family: FAMILY_RESOURCES.get(family or "", "memory")
        )
        self._on_matrix_units = resource == "tensor"
        self._streams = (resource == "memory") & ~table["indexed"].fill_null(False).to_numpy()
        self._blocks = table["blocks"].fill_null(np.inf).to_numpy()
        self._fills_few_sms = self._blocks < MAX_FEW_SMS_FRACTION * source.sms
        self._formats: dict[tuple[str | bool, ...], CategoricalColumn] = {}
        self._dtypes = frozenset(self._table["dtype"])

    def scale(self, target: Hardware) -> Floats:
        """Return the times on a GPU, in microseconds."""
        ratios = self._compute_ratios(target)
        return self._scale_beyond_latency(self._choose_ratio(ratios), ratios, target)

    def scale_with_bracket(self, target: Hardware) -> ScaledTimes:
        """Return the same, with what each candidate resource would give."""
        ratios = self._compute_ratios(target)
        ratio = self._choose_ratio(ratios)
        candidates = np.log(np.stack(list(ratios.values())))
        bracket = np.maximum(candidates.max(axis=0) - np.log(ratio), np.log(ratio) - candidates.min(axis=0))
        bracket = np.where(self._fills_few_sms, 0.5, 1.0) * bracket
        half_width = bracket[self._row] * (1 - self._fixed / self._measured)
        time = self._scale_beyond_latency(ratio, ratios, target)
        least, most = self._limit_ratios(ratios)
        return ScaledTimes(time, half_width, self._measured * least[self._row], self._measured * most[self._row])

    def limit(self, target: Hardware, time_us: Floats) -> Floats:
        """Return times on a GPU that gain and lose no more than the resource that differs most.

        Args:
            target: The GPU.
            time_us: Time of each measurement there, in microseconds.
        """
        return self._limit_times(time_us, self._compute_ratios(target))

    def _scale_beyond_latency(self, ratio: Floats, ratios: dict[str, Floats], target: Hardware) -> Floats:
        clock = self._source.clock_mhz / target.clock_mhz
        return self._limit_times(self._fixed * clock + (self._measured - self._fixed) * ratio[self._row], ratios)

    def _limit_times(self, time_us: Floats, ratios: dict[str, Floats]) -> Floats:
        least, most = self._limit_ratios(ratios)
        return np.clip(time_us, self._measured * least[self._row], self._measured * most[self._row])

    def _limit_ratios(self, ratios: dict[str, Floats]) -> tuple[Floats, Floats]:
        """Return the least and the largest ratio that a whole GPU's resources allow; a fixed time has a ratio of 1."""
        whole = np.stack([ratios[name] for name in WHOLE_GPU_RESOURCES])
        return np.fmin(whole.min(axis=0), 1.0), np.fmax(whole.max(axis=0), 1.0)

    def _choose_ratio(self, ratios: dict[str, Floats]) -> Floats:
        """Return the ratio of the resource that each distinct kernel waits for."""
        mixed = np.sqrt(ratios["memory"] * ratios["vector"])
        ratio = np.where(self._on_matrix_units, ratios["tensor"], np.where(self._streams, ratios["memory"], mixed))
        on_few = np.where(self._on_matrix_units, np.fmax(ratios["clock"], ratios["SM's tensor"]), ratios["clock"])
        return np.where(self._fills_few_sms, on_few, ratio)

    def _compute_ratios(self, target: Hardware) -> dict[str, Floats]:
        """Return how many times as long each resource takes on a GPU."""
        ones, source = np.ones(self._blocks.size), self._source
        clock = source.clock_mhz / target.clock_mhz
        waves = _compute_waves(self._blocks, target) / _compute_waves(self._blocks, source)
        here, there = self._resolve_dtypes(source), self._resolve_dtypes(target)
        tensor = here.map(source.get_tflops) / there.map(target.get_tflops)
        wider = compare_element_bytes(here, there)
        return {
            "clock": ones * clock,
            "memory": wider * (source.bandwidth_gbps / target.bandwidth_gbps),
            "tensor": tensor,
            "SM's tensor": tensor * waves * (target.sms / source.sms),
            "vector": waves * clock,
            "all SMs": ones * clock * (source.sms / target.sms),
            "fp32": ones * (source.vector_tflops / target.vector_tflops),
            "cache": wider * (source.cache_gbps / target.cache_gbps),
        }

    def _resolve_dtypes(self, gpu: Hardware) -> CategoricalColumn:
        """Return the dtype that each distinct kernel runs in on a GPU."""
        key = get_format_key(gpu.gpu, self._dtypes)
        if key not in self._formats:
            self._formats[key] = CategoricalColumn.from_series(self._table.select(resolve_dtype(gpu.gpu))[:, 0])
        return self._formats[key]


def _compute_waves(blocks: Floats, gpu: Hardware) -> Floats:
    """Rounds of blocks over the SMs, up to a constant; many or unknown blocks fill them evenly."""
    few = np.minimum(blocks, 1e9)
    return np.where(few < 16 * gpu.sms, np.ceil(few / gpu.sms), few / gpu.sms)
