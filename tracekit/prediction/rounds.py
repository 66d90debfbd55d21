"""What is done with one part of a job in each round, and the sums and steps that leave it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.hardware import derive_hardware
from predictors.result import SHARED_ERROR_FRACTION
from tracekit.arrays import Floats, Ints, mark_any, mark_equal
from tracekit.parallelism.pipeline_parallel import Pipeline, predict_pipeline
from tracekit.prediction.clock import to_demands_ns
from tracekit.prediction.energy import KernelEnergy, average_kernel_energy, list_kernel_energies
from tracekit.prediction.intervals import PS_PER_US, find_kept_collectives, number_families
from tracekit.prediction.part import HIGH, CompressedPart, OpenPart, PartOnTarget, apply_edits_to
from tracekit.program import Program
from tracekit.replay.step_time import JobSteps, StepSpans, StepTime, StepTimes
from tracekit.workload.names.library import is_ampere_attention

END_COLUMNS = ("time_us", "low_us", "high_us")
METHOD_SHARES = (("measured", "law", "transfer"), ("scaled",), ("inferred",))
"""Methods that count as modelled, scaled and inferred in a coverage; all others are unknown."""
NOTHING_REPLACED = pl.DataFrame(schema={"dtype": pl.String, "runs_as": pl.String, "time_us": pl.Float64})


@dataclass(frozen=True, slots=True)
class RepeatNumbers:
    """Repeats of kernels, whose errors are equal: in the chosen steps and besides, collectives and others apart.

    Attributes:
        keys: ``name``, ``op``, ``input_dims``, ``family``, ``is_collective`` and ``chosen`` of each.
        number: Row in ``keys`` of each kernel.
    """

    keys: pl.DataFrame
    number: Ints


@dataclass(frozen=True, slots=True)
class PartWithRendezvous:
    """A part on a target, between the rendezvous of its job.

    Attributes:
        part: The part.
        met_ns: Times of the rendezvous that it waits for, two arrays a replay: in the replay, and in one without the
            GPU's work; empty where it meets nobody.
    """

    part: PartOnTarget
    met_ns: tuple[Ints, ...] = ()


@dataclass(frozen=True, slots=True)
class TimedPart:
    """The steps of a part in each replay.

    Attributes:
        steps: The times of its steps; without those of the GPU where nobody asked for them.
        pipeline: The pipeline that its job becomes; None without.
        longer: For each of the first three replays, by how much that makes each step of the job longer.
    """

    steps: list[StepTimes]
    pipeline: Pipeline | None = None
    longer: tuple[Floats | float, ...] = (1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class TimeSums:
    """What a job's interval, energy, coverage and notes need of a part's kernels on a target.

    Attributes:
        repeats: Times summed over repeats of each kernel, in whole picoseconds, so that the order of summing changes
            nothing: ``name``, ``op``, ``input_dims``, ``family`` (a number), ``is_collective``, ``chosen``; ``count``
            of those that aren't kept as measured, ``time_ps``, ``low_ps``, ``high_ps`` and ``shared_ps`` (the part that
            is missed as others of the family are) of these; and ``measured_ps`` of all.
        methods_ns: Measured time that is modelled, scaled, unknown and inferred
            (:class:`tracekit.prediction.model.Coverage`): of the chosen steps, and of all kernels.
        energies: What :func:`tracekit.prediction.energy.list_kernel_energies` lists, by GPU and step.
        keeps_measured: Whether all kernels take as long as measured.
        clocked_us: Time of all kernels at the boost clock, and at the one that the step's power leaves.
        limited_us: Time of all kernels with and without a power limit, and with and without a lower clock.
        replaced: ``dtype``, ``runs_as`` and ``time_us`` of kernels of the chosen steps that run in another format.
        chosen_us: Time of the chosen steps' kernels.
        older_attention_us: That of attention among them that doesn't use the GPU's own matrix units.
        communicates: Whether any collective takes time there.
    """

    repeats: pl.DataFrame
    methods_ns: tuple[tuple[int, ...], tuple[int, ...]]
    energies: tuple[Floats, Floats, Floats]
    keeps_measured: bool
    clocked_us: tuple[float, float]
    limited_us: tuple[tuple[float, float], tuple[float, float]]
    replaced: pl.DataFrame
    chosen_us: float
    older_attention_us: float
    communicates: bool


def compress_part(item: PartOnTarget) -> CompressedPart:
    """Compress a part's graph for its replays."""
    return item.open().compress()


def time_steps(item: PartWithRendezvous) -> TimedPart:
    """Replay a part; return the times of its steps, as recorded first if they are measured."""
    opened, asked = item.part.open(), item.part
    program, timer = opened.program, opened.program.step_timer
    pairs: list[tuple[Ints, Ints] | None] = [*zip(item.met_ns[::2], item.met_ns[1::2], strict=True)]
    pairs = pairs or [None] * len(asked.replays)
    lines = [opened.replay(one, met) for one, met in zip(asked.replays, pairs, strict=True)]
    steps = [
        timer.compute_step_times(line) if one.measures_gpu else StepTimes.without_gpu(timer.compute_step_spans(line))
        for one, line in zip(asked.replays, lines, strict=True)
    ]
    if asked.target is None:
        steps.insert(0, timer.compute_step_times(opened.build_recorded_timeline(pairs[0])))
    if asked.stages is None:
        return TimedPart(steps)
    layout, cluster = asked.stages
    pipeline, longer = predict_pipeline(program, lines[: HIGH + 1], layout, cluster)
    return TimedPart(steps, pipeline, tuple(longer))


def sum_source_demand(item: PartOnTarget) -> Floats:
    """Sum over each step what the measured kernels demanded of each board's power."""
    opened = item.open()
    assert opened.kernels is not None
    predictor = opened.kernels.predictor
    return _sum_demand_ns(opened, predictor.table.select("dtype").hstack(predictor.on_source))


def sum_demand(item: PartOnTarget) -> Floats:
    """Sum over each step what the kernels demand of each board above idle, in nanoseconds at the board's limit."""
    opened = item.open()
    return _sum_demand_ns(opened, opened.times)


def _sum_demand_ns(opened: OpenPart, kernels: pl.DataFrame) -> Floats:
    return opened.program.step_timer.sum_by_gpu(to_demands_ns(kernels, opened.gpu))


def sum_times(item: PartOnTarget) -> TimeSums:
    """Sum the kernel times of a part on a target."""
    opened = item.open()
    assert opened.kernels is not None
    times, program, gpu = opened.times, opened.program, opened.gpu
    drawn, total, unknown = (
        program.step_timer.sum_by_gpu(one) for one in list_kernel_energies(apply_edits_to(program, times), gpu)
    )
    chosen = program.is_in_chosen_steps
    is_collective = mark_equal(times["family"], "collective")
    return TimeSums(
        repeats=_sum_repeats(opened),
        methods_ns=_sum_methods_ns(program, times),
        energies=(drawn, total, unknown),
        keeps_measured=bool(np.array_equal(times["time_us"].to_numpy(), times["measured_us"].to_numpy())),
        clocked_us=(float(opened.kernels.boosted["time_us"].sum()), float(times["time_us"].sum())),
        limited_us=(_sum_limited_us(times, "slowdown"), _sum_limited_us(times, "clock_slowdown")),
        replaced=_sum_replaced(times, chosen),
        chosen_us=float(times["time_us"].filter(chosen).sum()),
        older_attention_us=_sum_older_attention_us(program, times, gpu),
        communicates=bool(times["time_us"].to_numpy()[is_collective].any()),
    )


def _number_repeats(program: Program) -> RepeatNumbers:
    keys = program.kernels.select(
        "name", "op", "input_dims", family=number_families(), is_collective=pl.col("family") == "collective"
    )
    keys = keys.with_columns(chosen=program.is_in_chosen_steps)
    number = keys.select(pl.struct(pl.all()).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
    _, first = np.unique(number, return_index=True)
    return RepeatNumbers(keys[first], number)


def _sum_repeats(opened: OpenPart) -> pl.DataFrame:
    """Sum the times over repeats of each kernel: see :class:`TimeSums`."""
    program, times = opened.part.program, opened.times
    repeats = opened.part.remember("repeats", lambda: _number_repeats(program))
    counted = ~find_kept_collectives(times)

    def add(weight: Floats) -> pl.Series:
        return pl.Series(np.bincount(repeats.number, weight, repeats.keys.height))

    sums = {"count": add(counted.astype(np.float64))}
    sums |= {
        name.replace("_us", "_ps"): add(np.where(counted, np.rint(times[name].to_numpy() * PS_PER_US), 0.0))
        for name in END_COLUMNS
    }
    fraction = times["shared_error"].to_numpy()
    shared = times["time_us"].to_numpy() * np.where(np.isnan(fraction), SHARED_ERROR_FRACTION, fraction)
    sums["shared_ps"] = add(np.where(counted, np.rint(shared * PS_PER_US), 0.0))
    sums["measured_ps"] = add(np.rint(opened.program.kernel_us * PS_PER_US))
    return repeats.keys.hstack([column.alias(name) for name, column in sums.items()])


def _sum_methods_ns(program: Program, times: pl.DataFrame) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sum the measured time by the shares of a coverage: of the chosen steps, and of all kernels."""
    modelled, scaled, inferred = (mark_any(times["method"], methods) for methods in METHOD_SHARES)
    shares = (modelled, scaled, ~(modelled | scaled | inferred), inferred)
    ns, chosen = program.kernels["dur_ns"].to_numpy(), program.is_in_chosen_steps.to_numpy()
    sums = (tuple(int(ns[one & counted].sum()) for one in shares) for counted in (chosen, np.ones_like(chosen)))
    of_chosen, of_all = sums
    return of_chosen, of_all


def _sum_limited_us(times: pl.DataFrame, slowdown: str) -> tuple[float, float]:
    """Sum the times, and what they would be without the factor on each; zeros where there is none."""
    if slowdown not in times.columns:
        return 0.0, 0.0
    return float(times["time_us"].sum()), float((times["time_us"] / times[slowdown]).sum())


def _sum_replaced(times: pl.DataFrame, chosen: pl.Series) -> pl.DataFrame:
    """Sum the times of the chosen steps' kernels that run in another format than their own."""
    if times["runs_as"].null_count() == times.height:
        return NOTHING_REPLACED
    replaced = times.filter(times["runs_as"].is_not_null() & chosen)
    return replaced.group_by("dtype", "runs_as", maintain_order=True).agg(pl.col("time_us").sum())


def _sum_older_attention_us(program: Program, times: pl.DataFrame, gpu: Gpu) -> float:
    """Sum the time of attention in the chosen steps that doesn't use the GPU's own matrix units."""
    if derive_hardware(gpu).mma_rate_fraction >= 1:
        return 0.0
    if not mark_equal(program.kernels["family"], "attention").any():
        return 0.0
    older = program.kernels.select(is_ampere_attention().fill_null(False)).to_series()
    return float(times["time_us"].filter(older & program.is_in_chosen_steps).sum())


def merge_gpus(parts: Sequence[Floats]) -> Floats:
    """Merge sums by GPU and step of all parts, part after part; NaN where a rank has fewer GPUs than others."""
    gpus = max(one.shape[0] for one in parts)
    padded = (np.pad(one, ((0, gpus - one.shape[0]), (0, 0)), constant_values=np.nan) for one in parts)
    return np.concatenate(list(padded), axis=1)


def average_energies(
    parts: Sequence[tuple[Floats, ...]], steps: JobSteps, replayed: StepTime, gpu: Gpu
) -> KernelEnergy:
    """Average the power of a median step's kernels from what :func:`list_kernel_energies` lists, summed by part.

    Args:
        parts: By GPU and step of each part.
        steps: The steps of all parts together.
        replayed: The median step.
        gpu: The GPU.
    """
    drawn_mj, total_us, unknown_us = (steps.compute_median_sum_us(merge_gpus(one)) for one in zip(*parts, strict=True))
    return average_kernel_energy(drawn_mj, total_us, unknown_us, replayed, gpu)


def merge_steps(parts: Sequence[StepTimes]) -> StepTimes:
    """Merge the steps of all parts, part after part."""
    spans = StepSpans(
        *(
            np.concatenate([getattr(one.spans, name) for one in parts])
            for name in ("begin_ns", "previous_end_ns", "end_ns", "has_times", "has_duration")
        )
    )
    gpu = (np.concatenate([getattr(one, name) for one in parts]) for name in ("busy_ns", "exposed_ns", "waiting_ns"))
    return StepTimes(spans, *gpu)
