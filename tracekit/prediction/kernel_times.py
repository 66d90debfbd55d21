"""Predict the kernels of a run in one layout, on one GPU after the other."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import exp

import numpy as np
import polars as pl

from predictors import Batch, Gpu
from predictors.arrays import Floats, Ints, find_nulls, is_true
from predictors.kernels import MEMORY_FAMILIES
from predictors.transfer import KernelErrors, StackErrors
from tracekit.parallelism.unknown_work import apply_work_bounds, widen_intervals
from tracekit.prediction.cpu_elements import add_element_clocks
from tracekit.workload.ops.recurrent import STATE_AND_DIRECTION_POSITIONS as RECURRENT_OPS

LAYOUT_CHANGE = "^(nchwToNhwc|nhwcToNchw)Kernel$"
"""Captured kernels of cuDNN that change how an image lies."""

RECURRENT_HALF_WIDTH = 0.7
"""Half-width, as a logarithm, of what is unknown of captured recurrent layers: a factor of two, as directions or layers
side by side make. A judgement: none was measured."""


class KernelTimePredictor:
    """Predicts kernel times; work that all target GPUs have in common is done once.

    Args:
        table: The kernel table with ``measured_us``; ``derived``, whether that time is derived; and ``most``, the
            factor by which the time may be longer.
        source_gpu: GPU of the trace; None if unknown.
        by_shape: Whether the times are no measurements, so that shapes alone tell those on a target.
        half_width: Half-width, as a logarithm, of an error that all times have besides; 0 for none.
        time_ratio: How many times as long all kernels take as they do one by one.
        job_errors: What :meth:`tabulate_errors` tells of all kernels of the job, in the same order, where these are a
            part of them.
    """

    def __init__(
        self,
        table: pl.DataFrame,
        source_gpu: Gpu | None,
        *,
        by_shape: bool = False,
        half_width: float = 0.0,
        time_ratio: float = 1.0,
        job_errors: Sequence[StackErrors] | None = None,
    ) -> None:
        own, *of_ends = job_errors or (None, None, None)
        self._errors_of_ends = of_ends
        self.table = table
        self._source, self._times_by_shape, self._half_width = source_gpu, by_shape, half_width
        self._time_ratio = time_ratio
        self._told = table.drop("measured_us") if by_shape else table
        self._batch = Batch(self._told, source_gpu=None if by_shape else source_gpu, job_errors=own)
        self._bracketed = pl.Series(np.flatnonzero(~find_nulls(table["work_low"])))
        self._derived = pl.Series(np.flatnonzero(is_true(table["derived"])))

    @cached_property
    def on_source(self) -> pl.DataFrame:
        """The kernels on the trace's own GPU, which has to be known."""
        if self._source is None:
            raise ValueError("the GPU of the trace isn't known")
        return self.predict(self._source, {})

    @cached_property
    def _ends(self) -> list[Batch]:
        """The kernels of bounded work, with the least and with the most."""
        ends = apply_work_bounds(self._told)
        return [
            Batch(end, source_gpu=self._source, job_errors=errors)
            for end, errors in zip(ends, self._errors_of_ends, strict=True)
        ]

    @cached_property
    def _by_law(self) -> Batch:
        """The kernels of derived times."""
        return Batch(self.table[self._derived].drop("measured_us"), source_gpu=self._source)

    @cached_property
    def _by_shape(self) -> Batch:
        return Batch(self.table.drop("measured_us"))

    def predict(self, gpu: Gpu, calibrations: Mapping[Gpu, pl.DataFrame]) -> pl.DataFrame:
        """Predict the kernel times on a GPU, as ``predictors.predict`` does; intervals include uncertain work.

        Args:
            gpu: The target.
            calibrations: Kernels that were measured, by GPU.
        """
        times = self._batch.on(gpu, calibrations)
        if gpu.is_cpu:
            times = add_element_clocks(self.table, times, gpu)
        if self._times_by_shape:
            times = widen_recurrent_layers(self.table, leave_out_layout_changes(self.table, times, gpu))
        if not self._derived.is_empty():
            times = self._widen_derived(times, self._by_law.on(self._source or gpu, calibrations))
        if self._time_ratio != 1.0:
            times = times.with_columns(pl.col("time_us", "low_us", "high_us") * self._time_ratio)
        if self._half_width:
            times = _widen(times, self._half_width)
        if self._bracketed.is_empty():
            return times
        low, high = (end.predict_time_us(gpu, calibrations) for end in self._ends)
        return widen_intervals(times, self._bracketed, (low, high))

    def tabulate_errors(self, gpu: Gpu, calibrations: Mapping[Gpu, pl.DataFrame]) -> list[KernelErrors]:
        """Tabulate what the model misses on the trace's own GPU: with the likely, the least and the most work.

        Args:
            gpu: The target, another GPU than the trace's, which has to be known.
            calibrations: As for :meth:`predict`.
        """
        return [batch.tabulate_errors(gpu, calibrations) for batch in (self._batch, *self._ends)]

    def compute_clock_ratio(self, gpu: Gpu, fraction: float) -> Floats:
        """Return how many times as long each kernel takes at a fraction of the clock, by the laws.

        Kernels of unknown work take as long where their family waits for memory, and else inversely as long.
        """
        there, here = (self._by_shape.predict_time_us(one).to_numpy() for one in (gpu.with_clock(fraction), gpu))
        unknown = np.where(self.table["family"].is_in(MEMORY_FAMILIES).to_numpy(), 1.0, 1 / fraction)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = there / here
        return np.where(np.isfinite(ratio), np.fmax(ratio, 1.0), unknown)

    def _widen_derived(self, times: pl.DataFrame, by_law: pl.DataFrame) -> pl.DataFrame:
        """Widen the intervals of derived times by the error of the latency law that derived them.

        Args:
            times: Times on the target.
            by_law: Times of the derived kernels by the law alone, on the GPU for which they were derived.
        """
        widths = by_law.select(
            row=self._derived, low=(pl.col("time_us") / pl.col("low_us")), high=pl.col("high_us") / pl.col("time_us")
        )
        joined = times.with_row_index("row").join(widths, on="row", how="left", maintain_order="left")
        time = pl.col("time_us")
        low = time * (-_combine_errors(time / pl.col("low_us"), pl.col("low"))).exp()
        high = time * _combine_errors(pl.col("high_us") / time, pl.col("high")).exp()
        derived = pl.col("low").is_not_null() & (pl.col("method") != "law")
        longest = pl.max_horizontal(pl.when(derived).then(high).otherwise("high_us"), time * pl.lit(self.table["most"]))
        return joined.with_columns(
            low_us=pl.when(derived).then(low).otherwise("low_us"),
            high_us=longest,
            method=pl.when(derived & (pl.col("method") == "measured")).then(pl.lit("transfer")).otherwise("method"),
        ).select(times.columns)


class UnlikeSourceTimes:
    """Predicts kernel times of ranks that ran on several kinds of GPUs, each carried from its own.

    Args:
        table: The kernel table, as for :class:`KernelTimePredictor`.
        parts: Rows of the table, and what predicts them, for each kind of GPU.
    """

    def __init__(self, table: pl.DataFrame, parts: Sequence[tuple[Ints, KernelTimePredictor]]) -> None:
        self.table, self._parts = table, [one for _, one in parts]
        self._order = np.argsort(np.concatenate([rows for rows, _ in parts]))

    @cached_property
    def on_source(self) -> pl.DataFrame:
        """The kernels, each on its own GPU."""
        return self._join([one.on_source for one in self._parts])

    def predict(self, gpu: Gpu, calibrations: Mapping[Gpu, pl.DataFrame]) -> pl.DataFrame:
        """Predict the kernel times on a GPU; as :meth:`KernelTimePredictor.predict`."""
        return self._join([one.predict(gpu, calibrations) for one in self._parts])

    def compute_clock_ratio(self, gpu: Gpu, fraction: float) -> Floats:
        """Return how many times as long each kernel takes at a fraction of the clock."""
        ratio: Floats = np.concatenate([one.compute_clock_ratio(gpu, fraction) for one in self._parts])[self._order]
        return ratio

    def tabulate_errors(self, gpu: Gpu, calibrations: Mapping[Gpu, pl.DataFrame]) -> list[KernelErrors]:
        """Tabulate what the model misses of the first kind's kernels."""
        return self._parts[0].tabulate_errors(gpu, calibrations)

    def _join(self, tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(tables, how="vertical_relaxed")[self._order]


def leave_out_layout_changes(table: pl.DataFrame, times: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """Give captured kernels no time that only convolutions of fp32 on matrix units need, on a GPU without TF32.

    On a CPU oneDNN changes how an image lies inside of its convolution, in every format.

    Args:
        table: Captured kernels.
        times: Their predicted times.
        gpu: The GPU.
    """
    if gpu.supports("tf32"):
        return times
    left_out = table["name"].str.contains(LAYOUT_CHANGE) & (gpu.is_cpu | (table["dtype"] == "fp32"))
    kept = (~left_out).fill_null(value=True).cast(pl.Float64)
    return times.with_columns(pl.col("time_us", "low_us", "high_us") * kept)


def widen_recurrent_layers(table: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Widen the intervals of captured kernels of recurrent layers, whose algorithm cuDNN chooses.

    Args:
        table: Captured kernels.
        times: Their predicted times.
    """
    is_recurrent = table["op"].is_in(list(RECURRENT_OPS)).fill_null(value=False)
    if not is_recurrent.any():
        return times
    wide = _widen(times, RECURRENT_HALF_WIDTH)
    return times.with_columns(
        **{name: pl.when(is_recurrent).then(wide[name]).otherwise(name) for name in ("low_us", "high_us")}
    )


def _widen(times: pl.DataFrame, half_width: float) -> pl.DataFrame:
    """Widen the intervals by an independent error, given as a logarithm."""
    time, other = pl.col("time_us"), pl.lit(exp(half_width))
    return times.with_columns(
        low_us=time * (-_combine_errors(time / pl.col("low_us"), other)).exp(),
        high_us=time * _combine_errors(pl.col("high_us") / time, other).exp(),
    )


def _combine_errors(*factors: pl.Expr) -> pl.Expr:
    """Combine independent relative errors, given as factors; the result is a logarithm."""
    return pl.sum_horizontal(factor.log() ** 2 for factor in factors).sqrt()
