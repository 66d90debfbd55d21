"""One part of a job: some of its ranks, worked on together, and what leaves the part.

A job in memory is one part, whose graph holds all ranks. An engine works on parts of one rank each, which meet at their
collectives. Both go through the same functions; only sums and steps leave a part, so they are small whatever it holds::

    part 0 | kernels -> times -> sums ---+--> interval, clock, energy, coverage of the job
    part 1 | kernels -> times -> sums ---+
    part 0 | graph -> compressed ---+--> when the collectives take place --+-> part 0 | replay -> steps
    part 1 | graph -> compressed ---+                                      +-> part 1 | replay -> steps
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp
from typing import Any, Protocol, TypeVar

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.hardware import derive_hardware
from predictors.result import UNCHANGED_HALF_WIDTH
from predictors.transfer import StackErrors
from tracekit.arrays import Bools, Floats, Ints, mark_any, mark_equal
from tracekit.comm import Cluster
from tracekit.graph.edit import remove_edges
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.pipeline_parallel import Pipeline, predict_pipeline
from tracekit.parallelism.relayout import add_measured_times, get_kernel_key, relayout_kernels
from tracekit.prediction.clock import (
    apply_clock,
    apply_power_cap,
    change_clock,
    choose_slowdown,
    resolve_clock,
    resolve_power_cap,
    spread_slowdown,
    to_demands_ns,
)
from tracekit.prediction.collectives import fill_collective_times
from tracekit.prediction.energy import list_kernel_energies
from tracekit.prediction.intervals import KEPT_COLLECTIVE_FACTOR, PS_PER_US, find_kept_collectives
from tracekit.prediction.kernel_times import KernelTimePredictor
from tracekit.program import Program
from tracekit.replay.compressed import CompressedRank, JobLinks, RankReplay, compress_rank, release_ends
from tracekit.replay.engine import (
    MEASURED_TIMES,
    Timeline,
    UnknownTimes,
    build_measured_timeline,
    compute_lags,
    remove_gpu_work,
    replay,
    scale_unknown_time,
)
from tracekit.replay.step_time import StepSpans, StepTimes
from tracekit.workload.names.library import is_ampere_attention

T = TypeVar("T")

NOTHING_REPLACED = pl.DataFrame(schema={"dtype": pl.String, "runs_as": pl.String, "time_us": pl.Float64})

LIKELY, LOW, HIGH = range(3)
"""Kernel times of a replay."""
GPU_WORK, OLDER_ATTENTION = "gpu-work", "older-attention"
"""Kernels that a replay scales: all but collectives, and attention that doesn't use the GPU's own matrix units."""
NO_HOST = 0.0
"""Factor on the duration of the host's own work that leaves nothing of it."""
END_COLUMNS = ("time_us", "low_us", "high_us")
KERNEL_COLUMNS = ("name", "op", "input_dims", "family", "dtype", "measured_us")
METHOD_SHARES = (("measured", "law", "transfer"), ("scaled",), ("inferred",))
"""Methods that count as modelled, scaled and inferred in a coverage; all others are unknown."""
SHARPENED_HALF_WIDTH = 0.05
"""Half-width, as a logarithm, of the 90 % interval of what a captured program's ops, corrected by a trace of it, leave
open of its GPU's time: 10 of 11 programs were within 4 % (tests/validation/results/whole_jobs/sharpened_steps.md)."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay of a job on a target.

    Attributes:
        kernels: Which of the likely, the low and the high kernel times.
        host_time: Factor on the duration of the host's own work.
        unknown: Which of the times of what the trace doesn't explain.
        scaled: Kernels whose times are scaled, ``GPU_WORK`` or ``OLDER_ATTENTION``, and the factor.
        measures_gpu: Whether to measure how long the GPU is busy in each step, which takes longer.
    """

    kernels: int = LIKELY
    host_time: float = 1.0
    unknown: int = LIKELY
    scaled: tuple[str, float] | None = None
    measures_gpu: bool = False


class TableStore(Protocol):
    """Keeps tables of a part from one round to the next."""

    def keep(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return the table of a name; make it the first time."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryStore:
    """Keeps tables in memory."""

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)

    def keep(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return the table of a name; make it the first time."""
        if name not in self.tables:
            self.tables[name] = make()
        return self.tables[name]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a job, opened for work.

    Attributes:
        program: Its kernels, steps and graph.
        store: Keeps tables of it between rounds.
        read_whole: Returns the program with all that its traces tell, where ``program`` lacks their tables.
    """

    program: Program
    store: TableStore = field(default_factory=MemoryStore)
    read_whole: Callable[[], Program] | None = None
    _made: dict[object, Any] = field(default_factory=dict)

    def remember(self, key: object, make: Callable[[], T]) -> T:
        """Return what was made for a key; make it the first time."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def predict_kernels(self, target: "PartTarget") -> "PartKernels":
        """Return its kernels on a target; those on the last one are remembered."""
        last: PartKernels | None = self._made.get("on target")
        if last is None or last.target is not target:
            self._made["on target"] = last = PartKernels(self, target)
        return last


class Place(Protocol):
    """Where a part of a job is."""

    def open(self) -> Part:
        """Return the part."""
        ...


@dataclass(frozen=True, eq=False)
class PartTarget:
    """What a part needs to know to predict its kernels on a target.

    Attributes:
        gpu: The target's GPU.
        source: The traces' GPU; None if unknown.
        calibrations: Kernels that were measured, by GPU.
        collectives: Times of the part's collectives there: ``row`` among its kernels, and the columns of
            :func:`tracekit.prediction.collectives.retarget_collectives`; None where no links are known.
        layouts: Layouts of the trace and on the target; None where the layout stays.
        power_cap_w: Power limit of the target's GPU; None for its own.
        clock_mhz: Clock of the target's GPU; None for its own.
        source_slowdown: How many times as long the matrix units took in the trace as at the boost clock, by GPU of a
            rank.
        job_errors: What the model misses of the kernels of all parts on the traces' GPU; None where this is all of
            them, or nothing is carried from there.
    """

    gpu: Gpu
    source: Gpu | None
    calibrations: Mapping[Gpu, pl.DataFrame]
    collectives: pl.DataFrame | None = None
    layouts: tuple[Layout, Layout] | None = None
    power_cap_w: float | None = None
    clock_mhz: float | None = None
    source_slowdown: tuple[float, ...] = (1.0,)
    job_errors: tuple[StackErrors, ...] | None = None

    @property
    def name(self) -> str:
        """What tells the target from others among the tables of a part."""
        return "-".join((self.gpu.slug, *map(str, (*self.layout_key, self.clock_mhz, self.power_cap_w))))

    @property
    def layout_key(self) -> tuple[object, ...]:
        """What of the layouts changes kernels; a time that no GPU is known for is scaled by the target's law."""
        if self.layouts is None:
            return ()
        return (self.gpu.slug if self.source is None else None, *get_kernel_key(self.layouts[1]))

    @property
    def is_same_gpu(self) -> bool:
        """Whether the traces are of this GPU."""
        return self.source is not None and self.source.slug == self.gpu.slug

    @property
    def log_half_width(self) -> float:
        """Half-width, as a logarithm, of the interval of times that are kept as measured."""
        return 0.0 if self.is_same_gpu and not self.layouts else UNCHANGED_HALF_WIDTH

    def list_alone_rows(self) -> Ints:
        """List the rows of the collectives that have nobody left to wait for."""
        if self.collectives is None:
            return np.empty(0, np.int64)
        return self.collectives.filter("alone")["row"].to_numpy()


@dataclass(frozen=True, slots=True)
class PartOnTarget:
    """A part on a target, and what is asked of it.

    Attributes:
        place: Where the part is.
        target: The target; None for the measured kernel times.
        slowdown: How many times as long the matrix units take there as at the boost clock, by GPU of a rank.
        factors: Factors on all kernel times but those of collectives, and on these, at the low and the high end.
        unknown_times: The likely, low and high factors on the time of which the traces don't say what it was.
        replays: What is replayed.
        stages: The layout and the cluster with several stages, where the part tells the pipeline that its job becomes.
    """

    place: Place
    target: PartTarget | None = None
    slowdown: tuple[float, ...] = (1.0,)
    factors: tuple[tuple[float, float], tuple[float, float]] = ((1.0, 1.0), (1.0, 1.0))
    unknown_times: tuple[UnknownTimes, UnknownTimes, UnknownTimes] = (MEASURED_TIMES, MEASURED_TIMES, MEASURED_TIMES)
    replays: tuple[Replay, ...] = (Replay(measures_gpu=True),)
    stages: tuple[Layout, Cluster] | None = None

    def open(self) -> "OpenPart":
        """Open the part for this target."""
        part = self.place.open()
        return OpenPart(self, part, None if self.target is None else part.predict_kernels(self.target))


class PartKernels:
    """The kernels of a part on a target, before it is known which clock its job keeps.

    Attributes:
        part: The part.
        target: The target.
        program: The part's program, without the rendezvous that collectives no longer have.
    """

    def __init__(self, part: Part, target: PartTarget) -> None:
        self.part, self.target = part, target
        self.program = _remove_rendezvous(part.program, target.list_alone_rows())
        self._held: dict[tuple[float, ...], pl.DataFrame] = {}

    @cached_property
    def predictor(self) -> KernelTimePredictor:
        """What predicts them."""
        return self.part.remember(("kernels", *self.target.layout_key), self._make_predictor)

    def _make_predictor(self) -> KernelTimePredictor:
        target, program = self.target, self.part.program
        by_shape = program.has_predicted_times
        half_width = SHARPENED_HALF_WIDTH if program.is_captured and not by_shape else 0.0
        table = add_measured_times(program)
        if target.layouts is not None:
            name = "-".join(("laid-out", *map(str, self.target.layout_key)))
            table = self.part.store.keep(name, self._relayout)
        return KernelTimePredictor(
            table, target.source, by_shape=by_shape, half_width=half_width, job_errors=target.job_errors
        )

    def _relayout(self) -> pl.DataFrame:
        target, part = self.target, self.part
        assert target.layouts is not None
        whole = part.read_whole() if part.read_whole else part.program
        return relayout_kernels(whole, target.source, target.gpu, *target.layouts)

    @cached_property
    def boosted(self) -> pl.DataFrame:
        """Time of each kernel at the boost clock, with its interval."""
        target = self.target
        table = self.part.store.keep(f"on-{target.name}", self._predict)
        if target.collectives is not None:
            table = fill_collective_times(table, target.collectives)
        table = fill_unpredicted(table, target.log_half_width)
        if max(target.source_slowdown) > 1:
            on_source = self.predictor.on_source.select("time_us", "limiter", "runs_as")
            there = table.select("family", "dtype").hstack(on_source)
            slowed = spread_slowdown(there, self._choose(target.source_slowdown))
            table = change_clock(table, 1 / slowed, target.gpu)
        return table

    def _predict(self) -> pl.DataFrame:
        """Predict all kernels but collectives; unknown times are null."""
        gpu, kernels = self.target.gpu, self.predictor
        times = kernels.table.select(KERNEL_COLUMNS).hstack(kernels.predict(gpu, self.target.calibrations))
        if (fraction := resolve_clock(self.target.clock_mhz, gpu)) < 1:
            times = apply_clock(times, kernels.compute_clock_ratio(gpu, fraction), fraction, gpu)
        if self.target.power_cap_w is not None:
            times = apply_power_cap(times, resolve_power_cap(self.target.power_cap_w, gpu), gpu)
        return times

    def hold_clock(self, slowdown: tuple[float, ...]) -> pl.DataFrame:
        """Return the kernels' times at the clock that their job keeps."""
        if max(slowdown) <= 1:
            return self.boosted
        if slowdown not in self._held:
            slowed = spread_slowdown(self.boosted, self._choose(slowdown))
            self._held = {slowdown: change_clock(self.boosted, slowed, self.target.gpu)}
        return self._held[slowdown]

    def _choose(self, slowdown: Sequence[float]) -> pl.Series:
        """Return the slowdown of each kernel's GPU."""
        return choose_slowdown(np.array(slowdown), self.part.program.step_timer.gpu)

    def number_repeats(self) -> "RepeatNumbers":
        """Number the kernels by repeats of one kernel, whose errors are equal."""
        return self.part.remember("repeats", lambda: _number_repeats(self.part.program))


@dataclass(frozen=True, slots=True)
class RepeatNumbers:
    """Repeats of kernels, whose errors are equal: in the chosen steps and besides, collectives and others apart.

    Attributes:
        keys: ``name``, ``op``, ``input_dims``, ``is_collective`` and ``chosen`` of each.
        number: Row in ``keys`` of each kernel.
    """

    keys: pl.DataFrame
    number: Ints


@dataclass(frozen=True, slots=True)
class TimeSums:
    """What a job's interval, energy, coverage and notes need of a part's kernels on a target.

    Attributes:
        repeats: Times summed over repeats of each kernel, in whole picoseconds, so that the order of summing changes
            nothing: ``name``, ``op``, ``input_dims``, ``is_collective``, ``chosen``; ``count`` of those that aren't
            kept as measured, ``time_ps``, ``low_ps`` and ``high_ps`` of these; and ``measured_ps`` of all.
        methods_ns: Measured time by the shares of :class:`tracekit.prediction.model.Coverage`: of the chosen steps, and
            of all kernels.
        energies: What :func:`tracekit.prediction.energy.list_kernel_energies` lists, by GPU and step.
        keeps_measured: Whether all kernels take as long as measured.
        clocked_us: Time of all kernels at the boost clock, and at the one that the step's power leaves.
        limited_us: Time of all kernels with and without a power limit, and with and without a lower clock.
        replaced: ``dtype``, ``runs_as`` and ``time_us`` of kernels of the chosen steps that run in another format.
        chosen_us: Time of the chosen steps' kernels, of their collectives, and of attention that doesn't use the GPU's
            own matrix units.
        communicates: Whether any collective takes time there.
    """

    repeats: pl.DataFrame
    methods_ns: tuple[tuple[int, ...], tuple[int, ...]]
    energies: tuple[Floats, Floats, Floats]
    keeps_measured: bool
    clocked_us: tuple[float, float]
    limited_us: tuple[tuple[float, float], tuple[float, float]]
    replaced: pl.DataFrame
    chosen_us: tuple[float, float]
    communicates: bool


@dataclass(frozen=True, slots=True)
class CompressedPart:
    """A part's compressed graph, and where it meets others."""

    graph: CompressedRank
    links: JobLinks


@dataclass(frozen=True, slots=True)
class BoundPart:
    """A part on a target, between the rendezvous of its job.

    Attributes:
        part: The part.
        met_ns: For each replay, when the rendezvous take place that it waits for: in the replay, and of the hosts
            alone; empty where it meets nobody.
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


@dataclass(frozen=True)
class OpenPart:
    """A part that is open for a target.

    Attributes:
        asked: What is asked of it.
        part: The part.
        kernels: Its kernels there; None for the measured times.
    """

    asked: PartOnTarget
    part: Part
    kernels: PartKernels | None

    @property
    def program(self) -> Program:
        """The program that is replayed."""
        return self.kernels.program if self.kernels else self.part.program

    @cached_property
    def times(self) -> pl.DataFrame:
        """Time of each kernel, with its interval, at the clock that the job keeps."""
        assert self.kernels is not None
        return self.kernels.hold_clock(self.asked.slowdown)

    @property
    def gpu(self) -> Gpu:
        """The target's GPU."""
        assert self.asked.target is not None
        return self.asked.target.gpu

    def list_times_us(self) -> tuple[Floats, Floats, Floats]:
        """Return the likely, low and high time of each kernel, before edits."""
        point = self.times["time_us"].to_numpy()
        is_collective = mark_equal(self.times["family"], "collective")
        is_kept = find_kept_collectives(self.times)
        low, high = (
            np.where(is_kept, self.times[end].to_numpy(), np.where(is_collective, on_network, on_gpu) * point)
            for end, (on_gpu, on_network) in zip(("low_us", "high_us"), self.asked.factors, strict=True)
        )
        return point, low, high

    @cached_property
    def graphs(self) -> tuple[Program, Program, Program]:
        """The program with each of the unknown times."""
        likely, low, high = (_scale_unknown(self.program, one) for one in self.asked.unknown_times)
        return likely, low, high

    @cached_property
    def _ends_us(self) -> tuple[Floats, Floats, Floats]:
        return self.list_times_us()

    def list_durations_ns(self, one: Replay) -> Ints | None:
        """Return the duration of each kernel in a replay; None for the measured ones."""
        if self.kernels is None:
            return None
        us = self._ends_us[one.kernels]
        if one.scaled is not None:
            what, factor = one.scaled
            us = us * np.where(self._select(what), factor, 1.0)
        return self.program.to_durations_ns(us)

    def _select(self, what: str) -> Bools:
        """Select kernels that a replay scales."""
        kernels = self.program.kernels
        if what == GPU_WORK:
            return ~mark_equal(kernels["family"], "collective")
        return kernels.select(is_ampere_attention().fill_null(False)).to_series().to_numpy()

    def replay(self, one: Replay, met: tuple[Ints, Ints] | None = None) -> Timeline:
        """Replay the part; ``met`` as of :class:`BoundPart`."""
        graph, durations = self.graphs[one.unknown].graph, self.list_durations_ns(one)
        if met is None:
            return replay(graph, durations, one.host_time)
        links = self.links.activities
        run = compute_lags(graph, durations, one.host_time)[graph.run_edge[links.end_activity]]
        line = replay(release_ends(graph, links, met[0], run), durations, one.host_time)
        return replace(line, host_alone=release_ends(graph, links, met[1], 0 * run))

    def build_recorded_timeline(self, met: tuple[Ints, Ints] | None) -> Timeline:
        """Build the timeline as it was recorded."""
        line = build_measured_timeline(self.program.graph)
        if met is None:
            return line
        links = self.links.activities
        return replace(line, host_alone=release_ends(self.program.graph, links, met[1], 0 * self.links.rendezvous))

    @property
    def links(self) -> JobLinks:
        """Where the part meets others."""
        assert self.program.links is not None
        return self.program.links

    def compress(self) -> CompressedPart:
        """Compress the graph for the replays: for each the replay itself, and the host alone."""
        ends, replays = self.links.activities.end_activity, []
        for one in self.asked.replays:
            graph = self.graphs[one.unknown].graph
            lag = compute_lags(graph, self.list_durations_ns(one), one.host_time)
            alone, host_lag = remove_gpu_work(graph, lag)
            run = lag[graph.run_edge[ends]]
            replays += [RankReplay(lag, graph.release_ns, run), RankReplay(host_lag, alone.release_ns, 0 * run)]
        return CompressedPart(compress_rank(self.program.graph, self.links.activities, replays), self.links)


def compress_part(item: PartOnTarget) -> CompressedPart:
    """Compress a part's graph for its replays."""
    return item.open().compress()


def time_steps(item: BoundPart) -> TimedPart:
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
        chosen_us=(float(times["time_us"].filter(chosen).sum()), _sum_older_attention_us(program, times, gpu)),
        communicates=bool(times["time_us"].to_numpy()[is_collective].any()),
    )


def _number_repeats(program: Program) -> RepeatNumbers:
    keys = program.kernels.select("name", "op", "input_dims", is_collective=pl.col("family") == "collective")
    keys = keys.with_columns(chosen=program.is_in_chosen_steps)
    number = keys.select(pl.struct(pl.all()).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
    _, first = np.unique(number, return_index=True)
    return RepeatNumbers(keys[first], number)


def _sum_repeats(opened: OpenPart) -> pl.DataFrame:
    """Sum the times over repeats of each kernel: see :class:`TimeSums`."""
    assert opened.kernels is not None
    repeats, times = opened.kernels.number_repeats(), opened.times
    counted = ~find_kept_collectives(times)

    def add(weight: Floats) -> pl.Series:
        return pl.Series(np.bincount(repeats.number, weight, repeats.keys.height))

    sums = {"count": add(counted.astype(np.float64))}
    sums |= {
        name.replace("_us", "_ps"): add(np.where(counted, np.rint(times[name].to_numpy() * PS_PER_US), 0.0))
        for name in END_COLUMNS
    }
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


def fill_unpredicted(times: pl.DataFrame, log_half_width: float) -> pl.DataFrame:
    """Fill in the measured time, with an interval, where no time was predicted.

    Args:
        times: Predicted times, null where unknown.
        log_half_width: Half-width of the interval of these times, as a logarithm; 0 on the GPU that measured them. Else
            collectives, of which nothing scales, take from no time to ``KEPT_COLLECTIVE_FACTOR`` times as long.
    """
    ends = {"low_us": exp(-log_half_width), "time_us": 1.0, "high_us": exp(log_half_width)}
    of_collectives = {"low_us": 0.0, "time_us": 1.0, "high_us": KEPT_COLLECTIVE_FACTOR} if log_half_width else ends
    is_collective = pl.col("family") == "collective"
    factors = {
        end: pl.when(is_collective).then(of_collectives[end]).otherwise(factor).fill_null(factor)
        for end, factor in ends.items()
    }
    return times.with_columns(
        *(pl.col(end).fill_null(pl.col("measured_us") * factor) for end, factor in factors.items()),
        method=pl.when(pl.col("time_us").is_null()).then(pl.lit("kept")).otherwise("method"),
    )


def apply_edits_to(program: Program, kernels: pl.DataFrame) -> pl.DataFrame:
    """Apply the factors of a program's what-if edits to predicted times."""
    if (program.kernel_factor == 1).all():
        return kernels
    return kernels.with_columns(pl.col("time_us", "low_us", "high_us") * pl.Series(program.kernel_factor))


def _remove_rendezvous(program: Program, rows: Ints) -> Program:
    """Remove the waiting for other ranks from some collectives, given by their rows."""
    if not rows.size:
        return program
    graph = program.graph
    kept_ns = graph.kept_ns.copy()
    kept_ns[rows] = 0
    meets = np.zeros(graph.src.size, dtype=np.bool_)
    meets[graph.transfer_edge[np.isin(graph.transfer_activity, rows)]] = True
    links = program.links.drop_ends(rows) if program.links else None
    return replace(program, graph=replace(remove_edges(graph, meets), kept_ns=kept_ns), links=links)


def _scale_unknown(program: Program, times: UnknownTimes) -> Program:
    graph = scale_unknown_time(program.graph, times)
    return program if graph is program.graph else replace(program, graph=graph)
