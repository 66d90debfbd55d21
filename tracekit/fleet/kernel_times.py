"""Predict the kernels of one rank on a target, and sum what the job's interval and clock need of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.result import UNCHANGED_HALF_WIDTH
from predictors.transfer import StackErrors
from tracekit.arrays import Floats, Ints
from tracekit.fleet.rank_files import read_table, write_table
from tracekit.fleet.replay import OpenRank
from tracekit.parallelism.relayout import add_measured_times
from tracekit.prediction.collectives import fill_collective_times
from tracekit.prediction.energy import list_kernel_energies
from tracekit.prediction.intervals import PS_PER_US, compute_end_factors, is_kept_collective
from tracekit.prediction.kernel_times import KernelTimePredictor
from tracekit.prediction.predictor import KERNEL_COLUMNS, fill_unpredicted, split_by_method
from tracekit.prediction.sustained_clock import change_clock, choose_slowdown, spread_slowdown, to_demands_ns
from tracekit.prediction.unknown_time import divide_sums
from tracekit.program import Program, StepTables, round_to_ns
from tracekit.replay.step_time import StepScale
from tracekit.trace import RankTrace
from tracekit.workload.kernel_table import number_gpus

END_COLUMNS = ("time_us", "low_us", "high_us")


@dataclass(frozen=True, slots=True)
class TargetTimes:
    """What a rank needs to know to predict its kernels on a target.

    Attributes:
        gpu: The target's GPU.
        source: The traces' GPU; None if unknown.
        framework: The serving engine that ran the job, and its version.
        calibrations: Kernels that were measured, by GPU.
        collectives: Times of the rank's collectives there: ``row`` among its kernels, and the columns of
            :func:`tracekit.prediction.collectives.retarget_collectives`; None without a cluster.
        source_slowdown: How many times as long the matrix units took in the trace as at the boost clock, by GPU of a
            rank.
        slowdown: How many times as long they take on the target, likewise.
        job_errors: What the model misses of all ranks' kernels on the traces' GPU; None where it is the target.
        factors: Factors on all kernel times but those of collectives, and on these, at the low and the high end.
    """

    gpu: Gpu
    source: Gpu | None
    framework: tuple[str, str | None] | None
    calibrations: Mapping[Gpu, pl.DataFrame]
    collectives: pl.DataFrame | None = None
    source_slowdown: tuple[float, ...] = (1.0,)
    slowdown: tuple[float, ...] = (1.0,)
    job_errors: tuple[StackErrors, ...] | None = None
    factors: tuple[tuple[float, float], tuple[float, float]] = ((1.0, 1.0), (1.0, 1.0))

    @property
    def is_same_gpu(self) -> bool:
        """Whether the traces are of this GPU."""
        return self.source is not None and self.source.slug == self.gpu.slug


@dataclass(frozen=True)
class RankKernels:
    """The kernels of one rank on a target.

    Attributes:
        rank: The rank.
        target: The target.
    """

    rank: OpenRank
    target: TargetTimes

    @cached_property
    def predictor(self) -> KernelTimePredictor:
        """What predicts them."""
        return make_predictor(self.rank, self.target)

    @cached_property
    def times(self) -> pl.DataFrame:
        """Time of each kernel, with its interval, at the clock that the job keeps."""
        table, target = self.boosted, self.target
        if max(target.slowdown) > 1:
            table = change_clock(table, spread_slowdown(table, self._choose(target.slowdown)), target.gpu)
        return table

    @cached_property
    def boosted(self) -> pl.DataFrame:
        """The same at the boost clock."""
        table = self._predict_kept()
        target = self.target
        if target.collectives is not None:
            table = fill_collective_times(table, target.collectives)
        table = fill_unpredicted(table, 0.0 if target.is_same_gpu else UNCHANGED_HALF_WIDTH)
        if max(target.source_slowdown) > 1 and not target.is_same_gpu:
            on_source = self.predictor.on_source.select("time_us", "limiter", "runs_as")
            there = table.select("family", "dtype").hstack(on_source)
            table = change_clock(table, 1 / spread_slowdown(there, self._choose(target.source_slowdown)), target.gpu)
        return table

    def _choose(self, slowdown: Sequence[float]) -> pl.Series:
        """Return the slowdown of each kernel's GPU."""
        return choose_slowdown(np.array(slowdown), number_gpus(self.rank.kernels))

    def _predict_kept(self) -> pl.DataFrame:
        """Predict the kernels but collectives, and keep them beside the rank's tables."""
        folder, name = self.rank.place.summary.task.folder, f"on-{self.target.gpu.slug}"
        try:
            return read_table(folder, name)
        except FileNotFoundError:
            times = self.predictor.predict(self.target.gpu, self.target.calibrations)
            table = self.predictor.table.select(KERNEL_COLUMNS).hstack(times)
            write_table(folder, name, table)
            return table

    def list_durations_ns(self) -> tuple[Ints, Ints, Ints]:
        """Return the likely, low and high duration of each kernel."""
        point = self.times["time_us"].to_numpy()
        is_collective = (self.times["family"] == "collective").to_numpy()
        is_kept = self.times.select(is_kept_collective()).to_series().to_numpy()
        ends = (
            np.where(is_kept, self.times[end].to_numpy(), np.where(is_collective, on_network, on_gpu) * point)
            for end, (on_gpu, on_network) in zip(("low_us", "high_us"), self.target.factors, strict=True)
        )
        likely, low, high = (round_to_ns(us * 1e3, "kernels") for us in (point, *ends))
        return likely, low, high

    def sum_demand_ns(self) -> Floats:
        """Sum over each step what the kernels demand of each GPU above idle, in nanoseconds at the board's limit."""
        return sum_demand_ns(self.rank, self.times, self.target.gpu)

    def sum_energies(self) -> tuple[Floats, Floats, Floats]:
        """Sum over each step on each GPU what :func:`tracekit.prediction.energy.list_kernel_energies` lists."""
        timer = self.rank.make_timer()
        drawn, time, unknown = (timer.sum_by_gpu(one) for one in list_kernel_energies(self.times, self.target.gpu))
        return drawn, time, unknown

    def sum_repeats(self) -> pl.DataFrame:
        """Sum the times over repeats of each kernel, in whole picoseconds, in the chosen steps and besides.

        Collectives that are kept as measured are left out.
        """
        columns = (*END_COLUMNS, "measured_us")
        whole = self.times.select((pl.col(columns) * PS_PER_US).round().cast(pl.Int64), kept=is_kept_collective())
        named = self.rank.kernels.select("name", "op", "input_dims", "family").hstack(whole)
        key = ("name", "op", "input_dims", pl.col("family") == "collective")
        grouped = (
            named.with_columns(chosen=self._is_chosen)
            .filter(~pl.col("kept"))
            .group_by(*key, "chosen", maintain_order=True)
        )
        return grouped.agg(pl.col(columns).sum())

    def sum_methods_ns(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sum the measured time by the shares of ``Coverage``: of the chosen steps, and of all kernels."""
        table = pl.DataFrame({"ns": self.rank.kernels["dur_ns"], "method": self.times["method"]})
        sums = [pl.col("ns").filter(part).sum() for part in split_by_method()]
        chosen, every = (
            one.select(**{str(i): part for i, part in enumerate(sums)}).row(0)
            for one in (table.filter(self._is_chosen), table)
        )
        return chosen, every

    @property
    def _is_chosen(self) -> pl.Series:
        chosen = self.rank.place.chosen_steps["step"].implode()
        return self.rank.kernels["step"].is_in(chosen).fill_null(value=False)

    def keeps_measured(self) -> bool:
        """Whether all kernels take as long as measured."""
        return bool(np.array_equal(self.times["time_us"].to_numpy(), self.times["measured_us"].to_numpy()))


def make_predictor(rank: OpenRank, target: TargetTimes) -> KernelTimePredictor:
    """Make the predictor of a rank's kernels."""
    program = make_program(rank, rank.place.summary.trace, target.framework)
    return KernelTimePredictor(add_measured_times(program), target.source, job_errors=target.job_errors)


def make_program(rank: OpenRank, trace: RankTrace, framework: tuple[str, str | None] | None) -> Program:
    """Make the program of a rank alone.

    Args:
        rank: The rank.
        trace: Its trace, as far as the program's user needs it.
        framework: The serving engine that ran it, and its version.
    """
    steps = rank.place.steps
    return Program(
        tables=StepTables(rank.kernels, steps, steps, steps),
        graph=rank.graph,
        collectives=None,
        ranks=(trace,),
        step_scale=StepScale(np.empty(0), np.empty(0)),
        kernel_factor=np.ones(rank.kernels.height),
        framework=framework,
    )


def sum_source_demand_ns(rank: OpenRank, target: TargetTimes) -> Floats:
    """Sum over each step what the measured kernels demanded of each GPU, on a target that is the traces' own GPU."""
    predictor = make_predictor(rank, target)
    return sum_demand_ns(rank, predictor.table.select("dtype").hstack(predictor.on_source), target.gpu)


def sum_demand_ns(rank: OpenRank, kernels: pl.DataFrame, gpu: Gpu) -> Floats:
    """Sum over each step what kernels demand of each GPU above idle power, in nanoseconds at the board's limit."""
    return rank.make_timer().sum_by_gpu(to_demands_ns(kernels, gpu))


def compute_factors(sums: pl.DataFrame, known_bias: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Compute the factors at both ends of the interval, as :func:`compute_interval_times` does for a table of kernels.

    Args:
        sums: Of all ranks, as :meth:`RankKernels.sum_repeats` returns them.
        known_bias: Ratio of measured to predicted times of other jobs on the target.
    """
    on_gpu, on_network = (
        compute_end_factors(*_sum_ranks(sums.filter(part)), known_bias=bias)
        for part, bias in ((~pl.col("family"), known_bias), (pl.col("family"), 1.0))
    )
    return (on_gpu[0], on_network[0]), (on_gpu[1], on_network[1])


def compute_ratio(sums: pl.DataFrame) -> float:
    """Compute predicted over measured time, as :func:`~tracekit.prediction.unknown_time.compute_work_ratio` does.

    Args:
        sums: As for :func:`compute_factors`.
    """
    works = sums.filter(~pl.col("family"))
    counted = works.filter("chosen") if works["chosen"].any() else works
    return divide_sums(int(counted["time_us"].sum()), int(counted["measured_us"].sum()))


def _sum_ranks(sums: pl.DataFrame) -> tuple[Floats, Floats, Floats]:
    """Sum over the ranks: the chosen steps, or all kernels where nothing ran in these."""
    counted = sums.filter("chosen") if sums["chosen"].any() else sums
    merged = counted.group_by("name", "op", "input_dims").agg(pl.col(END_COLUMNS).sum())
    time, low, high = (merged[name].cast(pl.Float64).to_numpy() for name in END_COLUMNS)
    return time, low, high
