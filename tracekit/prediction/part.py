"""One part of a job: some of its ranks, worked on together, and what leaves the part.

A job in memory is one part, whose graph holds all ranks. An engine works on parts of one rank each, which meet at their
collectives. Both go through the same functions; only sums and steps leave a part, so they are small whatever it holds::

    part 0 | kernels -> times -> sums ---+--> interval, clock, energy, coverage of the job
    part 1 | kernels -> times -> sums ---+
    part 0 | graph -> compressed ---+--> when the collectives take place --+-> part 0 | replay -> steps
    part 1 | graph -> compressed ---+                                      +-> part 1 | replay -> steps

======================  =========================================================================

:class:`Part`           a program, and a store that keeps its tables between rounds
:class:`PartTarget`     what a part needs to know of a target to predict its kernels there
:class:`PartKernels`    its kernels there
:class:`PartOnTarget`   what a worker is asked: a part, a target, and what to replay
:class:`OpenPart`       that, with the part opened
======================  =========================================================================

"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp
from typing import Any, Protocol, TypeVar

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.result import UNCHANGED_HALF_WIDTH, UNKNOWN_SOURCE_HALF_WIDTH
from predictors.transfer import StackErrors
from tracekit.arrays import Bools, Floats, Ints, mark_equal
from tracekit.comm import Cluster
from tracekit.graph.edit import remove_edges
from tracekit.models.stacks import find_stack
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.relayout import add_measured_times, get_kernel_key, relayout_kernels
from tracekit.prediction.clock import (
    apply_clock,
    apply_power_cap,
    change_clock,
    choose_slowdown,
    resolve_clock,
    resolve_power_cap,
    spread_slowdown,
)
from tracekit.prediction.collectives import fill_collective_times
from tracekit.prediction.intervals import KEPT_COLLECTIVE_FACTOR, find_kept_collectives
from tracekit.prediction.kernel_times import KernelTimePredictor, UnlikeSourceTimes
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
from tracekit.run import find_recorded_gpu
from tracekit.workload.names.library import is_ampere_attention

T = TypeVar("T")

LIKELY, LOW, HIGH = range(3)
"""Kernel times of a replay."""
GPU_WORK, OLDER_ATTENTION = "gpu-work", "older-attention"
"""Kernels that a replay scales: all but collectives, and attention that doesn't use the GPU's own matrix units."""
NO_HOST = 0.0
"""Factor on the duration of the host's own work that leaves nothing of it."""
KERNEL_COLUMNS = ("name", "op", "input_dims", "family", "dtype", "measured_us")
SHARPENED_HALF_WIDTH = 0.05
"""Half-width, as a logarithm, of the 90 % interval of what a captured program's ops, corrected by a trace of it, leave
open of its GPU's time: 10 of 11 programs were within 4 % (tests/validation/results/whole_jobs/sharpened_steps.md)."""
CPU_HALF_WIDTH = 0.12
"""The same on a CPU: with a trace of them, 22 of 27 steps of six programs were within 12 %, by which it was chosen
(tests/validation/results/whole_jobs/cpus.md)."""
ENGINE_HALF_WIDTH = 0.13
"""The same of a serving engine's kernels as its list has them, beside their own intervals. Few measurements: 38 steps
of vLLM on nine GPUs, which score it, too (tests/validation/results/whole_jobs/served_steps.md)."""


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
        law_offsets: Logarithms of the factors on predicted times that outcomes of earlier predictions tell, by family.
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
    law_offsets: Mapping[str, float] = field(default_factory=dict)

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
        if self.is_same_gpu and not self.layouts:
            return 0.0
        return UNKNOWN_SOURCE_HALF_WIDTH if self.source is None else UNCHANGED_HALF_WIDTH

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
    def predictor(self) -> KernelTimePredictor | UnlikeSourceTimes:
        """What predicts them."""
        return self.part.remember(("kernels", *self.target.layout_key), self._make_predictor)

    def _make_predictor(self) -> KernelTimePredictor | UnlikeSourceTimes:
        target, program = self.target, self.part.program
        by_shape = program.has_predicted_times
        of_trace = CPU_HALF_WIDTH if target.gpu.is_cpu else SHARPENED_HALF_WIDTH
        half_width = of_trace if program.is_captured and not by_shape else 0.0
        facts = program.trace.capture_facts
        half_width = max(half_width, ENGINE_HALF_WIDTH if facts and facts.engine else 0.0)
        stack = find_stack(facts.stack if facts else "")
        table = add_measured_times(program)
        if target.layouts is not None:
            name = "-".join(("laid-out", *map(str, self.target.layout_key)))
            table = self.part.store.keep(name, self._relayout)

        def predict_from(source: Gpu | None, rows: pl.DataFrame) -> KernelTimePredictor:
            return KernelTimePredictor(
                rows,
                source,
                by_shape=by_shape,
                half_width=max(half_width, stack.half_width),
                time_ratio=stack.time_ratio,
                job_errors=target.job_errors,
            )

        sources = _list_unlike_sources(program, target.source)
        if not sources:
            return predict_from(target.source, table)
        return UnlikeSourceTimes(table, [(rows, predict_from(gpu, table[rows])) for gpu, rows in sources])

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
        if target.law_offsets:
            table = move_laws(table, target.law_offsets)
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


@dataclass(frozen=True, slots=True)
class CompressedPart:
    """A part's compressed graph, and where it meets others."""

    graph: CompressedRank
    links: JobLinks


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

    @cached_property
    def _ends_us(self) -> tuple[Floats, Floats, Floats]:
        """The likely, low and high time of each kernel, before edits."""
        point = self.times["time_us"].to_numpy()
        is_collective = mark_equal(self.times["family"], "collective")
        is_kept = find_kept_collectives(self.times)
        low, high = (
            np.where(is_kept, self.times[end].to_numpy(), np.where(is_collective, on_network, on_gpu) * point)
            for end, (on_gpu, on_network) in zip(("low_us", "high_us"), self.asked.factors, strict=True)
        )
        return point, low, high

    @cached_property
    def programs(self) -> tuple[Program, Program, Program]:
        """The program with each of the unknown times."""
        likely, low, high = (_scale_unknown(self.program, one) for one in self.asked.unknown_times)
        return likely, low, high

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
        """Replay the part; ``met`` as of :class:`tracekit.prediction.rounds.PartWithRendezvous`."""
        graph, durations = self.programs[one.unknown].graph, self.list_durations_ns(one)
        if met is None:
            return replay(graph, durations, one.host_time)
        links = self.links.activities
        run = compute_lags(graph, durations, one.host_time)[graph.run_edge[links.end_activity]]
        line = replay(release_ends(graph, links, met[0], run), durations, one.host_time)
        # Without GPU work a collective ends at its rendezvous.
        return replace(line, host_alone=release_ends(graph, links, met[1], np.zeros_like(run)))

    def build_recorded_timeline(self, met: tuple[Ints, Ints] | None) -> Timeline:
        """Build the timeline as it was recorded."""
        line = build_measured_timeline(self.program.graph)
        if met is None:
            return line
        links = self.links.activities
        nothing = np.zeros_like(self.links.rendezvous)
        return replace(line, host_alone=release_ends(self.program.graph, links, met[1], nothing))

    @property
    def links(self) -> JobLinks:
        """Where the part meets others."""
        assert self.program.links is not None
        return self.program.links

    def compress(self) -> CompressedPart:
        """Compress the graph for the replays: for each the replay itself, and the host alone."""
        ends, replays = self.links.activities.end_activity, []
        for one in self.asked.replays:
            graph = self.programs[one.unknown].graph
            lag = compute_lags(graph, self.list_durations_ns(one), one.host_time)
            alone, host_lag = remove_gpu_work(graph, lag)
            run = lag[graph.run_edge[ends]]
            replays += [
                RankReplay(lag, graph.release_ns, run),
                RankReplay(host_lag, alone.release_ns, np.zeros_like(run)),
            ]
        return CompressedPart(compress_rank(self.program.graph, self.links.activities, replays), self.links)


def move_laws(times: pl.DataFrame, offsets: Mapping[str, float]) -> pl.DataFrame:
    """Multiply predicted times by the factors of their families, given as logarithms; collectives stay."""
    factors = {family: exp(one) for family, one in offsets.items() if family != "collective"}
    factor = pl.col("family").replace_strict(factors, default=1.0, return_dtype=pl.Float64)
    return times.with_columns(pl.col("time_us", "low_us", "high_us") * factor)


def _list_unlike_sources(program: Program, source: Gpu | None) -> list[tuple[Gpu, Ints]]:
    """List the GPUs of ranks that ran on several kinds, each with its ranks' kernels; none where all are alike.

    Ranks that don't tell theirs have the first one's; so have all where the user gives the GPU.
    """
    recorded = find_recorded_gpu(program.trace)
    if source is None or recorded is None or recorded.slug != source.slug:
        return []
    found = {rank.rank or 0: find_recorded_gpu(rank) or source for rank in program.ranks}
    kinds = {gpu.slug: gpu for gpu in found.values()}
    slugs = program.kernels["rank"].replace_strict({rank: gpu.slug for rank, gpu in found.items()}).to_numpy()
    return [(gpu, np.flatnonzero(slugs == slug)) for slug, gpu in kinds.items()] if len(kinds) > 1 else []


def fill_unpredicted(times: pl.DataFrame, log_half_width: float) -> pl.DataFrame:
    """Fill in the measured time, with an interval, where no time was predicted: all are off alike, as the GPUs are.

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
        shared_error=pl.when(pl.col("time_us").is_null()).then(1.0).otherwise("shared_error"),
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
