"""The measured run: a trace's kernel table, steps and graph, the measured step, and the graph's own replay error."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from predictors import Gpu, PredictorError, Resolution, identify_gpu, resolve_gpu
from tracekit.arrays import Floats, Ints
from tracekit.errors import TraceError, TracekitError, WhatIfError
from tracekit.graph import Graph
from tracekit.graph.ranks import Collectives
from tracekit.inference_rules import select_rules
from tracekit.ingest import correlations
from tracekit.messages import Message, ProgressCallback, stages
from tracekit.messages import runs as messages
from tracekit.messages.steps import STEP_BEGINS_LATE, STEP_TIME_ZERO
from tracekit.replay.engine import Timeline, build_measured_timeline, replay
from tracekit.replay.step_scale import StepScale
from tracekit.replay.step_time import StepTime, StepTimer, merge_ranks
from tracekit.run_ranks import join_rank_traces
from tracekit.timing import correct_times
from tracekit.trace import RankTrace, Trace
from tracekit.workload import precision
from tracekit.workload.steps import drop_first_step

MAX_TOTAL_NS = 1e18

MAX_TRUSTED_ERROR_PCT = 5.0
"""Replay error up to which prediction intervals hold; above it, the trace has waits that the graph doesn't explain."""


@dataclass(frozen=True, slots=True)
class SelfReplay:
    """Replay of the measured kernels with all waits derived from the graph; the difference left is the graph's error.

    Attributes:
        step_time_us: The median step as replayed.
        span_us: All chosen steps as replayed.
        step_scale: Measured and self-replayed time of each step.
        error_pct: Against the measured one.
        derived_wait_us: Waiting of CPU threads, of collectives for ranks that were read, and of kernels for the one
            before, that was taken out of the measured run and derived again, per step and rank.
        kept_wait_us: Waiting of collectives that is kept as measured, in the median step of a rank.
    """

    step_time_us: float
    span_us: float
    step_scale: StepScale
    error_pct: float
    derived_wait_us: float
    kept_wait_us: float


@dataclass(frozen=True)
class RunTables:
    """What was measured: the kernels and the steps. Edits of the graph leave them as they are.

    Attributes:
        kernels: The kernel table (``schema.KERNELS``) with a column ``rank``, rank after rank. A collective's
            ``dur_ns`` is its transfer time. ``wait_ns`` is the time that a collective waited for other ranks before
            its transfer, and that any other kernel waited, after its start, for the previous kernel on its stream.
        steps: All steps of the trace, with a column ``rank``.
        chosen_steps: The steps that are measured: all figures are about these and no others.
        asked_steps: The steps that were asked for. The trace's first step starts with an empty launch queue: it is
            measured only if no other was asked for.
    """

    kernels: pl.DataFrame
    steps: pl.DataFrame
    chosen_steps: pl.DataFrame
    asked_steps: pl.DataFrame

    @cached_property
    def step_timer(self) -> StepTimer:
        """The timer that measures these steps in a timeline."""
        return StepTimer(self.kernels, self.steps, self.chosen_steps)


@dataclass(frozen=True, slots=True)
class RunProvenance:
    """Where a run comes from, and what was found or assumed on the way.

    Attributes:
        ranks: The traces of all measured ranks.
        ranks_read: Number of ranks whose traces were read.
        job_warnings: Warnings about the set of ranks that was given.
        source: The GPU the run was recorded on and how it was identified; ``None`` if it isn't known.
        source_doubt: Why the GPU isn't known although the trace describes one, or that the trace describes another
            GPU than the user named.
        time_faults: Recorded times that break physics and were corrected.
        assumptions: Deviations from the recording.
    """

    ranks: tuple[RankTrace, ...]
    ranks_read: int
    job_warnings: tuple[Message, ...]
    source: Resolution | None
    source_doubt: Message | None
    time_faults: tuple[Message, ...] = ()
    assumptions: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResults:
    """What was computed from a run.

    Attributes:
        measured_step: The median step as recorded.
        self_replay: The median step as replayed with the measured kernel times.
    """

    measured_step: StepTime
    self_replay: SelfReplay


@dataclass(frozen=True)
class MeasuredRun:
    """The measured run of one rank, or of several ranks together.

    Attributes:
        tables: The kernels and the steps.
        graph: The dependency graph.
        collectives: The collectives at which the ranks meet; ``None`` for one rank.
        provenance: The traces, the GPU, warnings and assumptions.
        results: The measured step and the self-replay.
        kernel_factor: Factor on each kernel's time in every replay, set by what-if edits; ``None`` before the first
            edit.
        edits: The applied what-if edits, as the user wrote them.
    """

    tables: RunTables
    graph: Graph
    collectives: Collectives | None
    provenance: RunProvenance
    results: RunResults
    kernel_factor: Floats | None = None
    edits: tuple[str, ...] = ()

    @property
    def kernels(self) -> pl.DataFrame:
        """The kernel table."""
        return self.tables.kernels

    @property
    def steps(self) -> pl.DataFrame:
        """All steps of the trace."""
        return self.tables.steps

    @property
    def chosen_steps(self) -> pl.DataFrame:
        """The steps that are measured."""
        return self.tables.chosen_steps

    @property
    def asked_steps(self) -> pl.DataFrame:
        """The steps that were asked for."""
        return self.tables.asked_steps

    @property
    def step_timer(self) -> StepTimer:
        """The timer that measures steps in this run's timelines."""
        return self.tables.step_timer

    @property
    def trace(self) -> RankTrace:
        """The trace of the rank, or of the first of several ranks."""
        return self.provenance.ranks[0]

    @property
    def ranks(self) -> tuple[RankTrace, ...]:
        """The traces of all measured ranks."""
        return self.provenance.ranks

    @property
    def source(self) -> Resolution | None:
        """The GPU the run was recorded on and how it was identified."""
        return self.provenance.source

    @property
    def measured_step(self) -> StepTime:
        """The median step as recorded."""
        return self.results.measured_step

    @property
    def self_replay(self) -> SelfReplay:
        """The median step as replayed with the measured kernel times."""
        return self.results.self_replay

    @property
    def gpu(self) -> Gpu | None:
        """The GPU the run was recorded on."""
        return self.source.gpu if self.source else None

    @property
    def is_in_chosen_steps(self) -> pl.Series:
        """Boolean mask of the kernels that belong to a chosen step."""
        return self.kernels["step"].is_in(self.chosen_steps["step"].implode()).fill_null(False)

    @property
    def kernel_us(self) -> Floats:
        """Measured time of each kernel in microseconds."""
        return (self.kernels["dur_ns"] / 1e3).to_numpy()

    def replace_tables(self, **tables: pl.DataFrame) -> "MeasuredRun":
        """Return the run with other tables, by their names in :class:`RunTables`."""
        return replace(self, tables=replace(self.tables, **tables))

    def replace_source(self, source: Resolution | None) -> "MeasuredRun":
        """Return the run as recorded on another GPU."""
        return replace(self, provenance=replace(self.provenance, source=source))

    def replay_timeline(self, kernel_us: Floats, host_time: float = 1.0) -> Timeline:
        """Replay with other kernel times and another host speed; arguments as for :meth:`replay_step`."""
        return replay(self.graph, self.to_durations_ns(kernel_us), host_time)

    def tabulate_chosen_steps(self, timeline: Timeline) -> pl.DataFrame:
        """Tabulate the chosen steps that have times: one row per rank and step.

        Args:
            timeline: A timeline of this run.

        Returns:
            The columns of :meth:`tracekit.replay.step_time.StepTimer.tabulate` and ``index``, the row among all steps.
        """
        table = self.step_timer.tabulate(timeline).with_row_index("index").drop_nulls("time_ns")
        return table.join(self.chosen_steps.select("step"), on="step", how="semi", maintain_order="left")

    def to_durations_ns(self, kernel_us: Floats) -> Ints:
        """Convert kernel times to a replay's durations, what-if edits included; argument as for :meth:`replay_step`."""
        factor = 1.0 if self.kernel_factor is None else self.kernel_factor
        return round_to_ns(kernel_us * factor * 1e3, "kernels")

    def compute_median(self, timeline: Timeline, longer: Floats | float = 1.0) -> StepTime:
        """Compute the median step of a replay, each step scaled to its own measured time.

        Args:
            timeline: A replay of this run, or of one that edits made of it.
            longer: As in :meth:`StepTimer.compute_median`.
        """
        return self.step_timer.compute_median(timeline, self.self_replay.step_scale, longer)

    def replay_step(self, kernel_us: Floats, host_time: float = 1.0) -> StepTime:
        """Return the median step with other kernel times and another host speed, as :meth:`compute_median` does.

        Args:
            kernel_us: Time of each kernel in the order of the kernel table; collectives without waiting for other
                ranks.
            host_time: Factor on the duration of the host's own work; 1.0 for the measured speed.
        """
        return self.compute_median(self.replay_timeline(kernel_us, host_time))

    def replay_step_time_us(self, kernel_us: Floats, host_time: float = 1.0) -> float:
        """Return the step time of :meth:`replay_step` alone, in a fraction of the time."""
        timeline = self.replay_timeline(kernel_us, host_time)
        return self.step_timer.compute_median_step_us(timeline, self.self_replay.step_scale)

    @cached_property
    def measured_timeline(self) -> Timeline:
        """The timeline as it was recorded."""
        return build_measured_timeline(self.graph)

    @cached_property
    def measured_steps(self) -> pl.DataFrame:
        """The steps asked for that have times, as :func:`tracekit.replay.step_time.merge_ranks` returns them."""
        table = merge_ranks(self.step_timer.tabulate(self.measured_timeline))
        asked = pl.col("step").is_in(self.asked_steps["step"].implode())
        return table.filter(asked, pl.col("time_ns").is_not_null())


def round_to_ns(times_ns: Floats, subject: str) -> Ints:
    """Round times to whole nanoseconds for a replay; ``subject`` names what takes them in the error message.

    Raises:
        WhatIfError: The sum is longer than 30 years; a larger one would overflow 64 bits.
    """
    if not times_ns.sum() < MAX_TOTAL_NS:
        raise WhatIfError(messages.TIMES_OVERFLOW(subject=subject))
    whole: Ints = np.rint(times_ns).astype(np.int64)
    return whole


def prepare_run(
    trace: Trace,
    *,
    source_gpu: str | None = None,
    steps: str | None = None,
    rank: int | None = None,
    without_rules: Sequence[str] = (),
    progress: ProgressCallback = lambda stage: None,
) -> MeasuredRun:
    """Classify a trace's kernels, build the dependency graph, and replay it.

    Args:
        trace: The trace.
        source_gpu: The GPU it was recorded on, if the trace doesn't name it or names it wrongly.
        steps: The steps to measure, ``"7"`` or ``"7:9"``; all by default.
        rank: The rank to measure; by default all ranks that were read, together.
        without_rules: Names of inference rules to switch off; ``tracekit info -v`` lists them.
        progress: Called with the name of each stage as it begins.

    Raises:
        StepError: The trace doesn't have these steps.
        TraceError: The trace doesn't have this rank, or all its steps have zero duration.
        PredictorError: ``source_gpu`` is unknown or ambiguous.
        RuleError: There is no such inference rule.
        TracekitError: ``trace`` is a file name instead of a trace.
    """
    if not isinstance(trace, Trace):
        raise TracekitError(messages.NOT_LOADED(given=repr(trace)))
    ranks = trace.ranks if rank is None else (trace.rank(rank),)
    without = select_rules(without_rules)
    if not correlations.RULE.is_on(without):
        ranks = tuple(map(correlations.drop_ordered_ids, ranks))
    ranks, time_faults = _correct_times(ranks)
    source, doubt = _resolve_named_gpu(source_gpu, ranks[0]) if source_gpu else _identify_gpu(ranks[0])
    job = join_rank_traces(ranks, steps, without, progress)
    progress(stages.REPLAYING())
    finds_tf32 = precision.RULE.is_on(without)
    chosen = drop_first_step(job.asked_steps, job.steps, job.kernels)
    meter = StepTimer(job.kernels, job.steps, chosen)
    lines = build_measured_timeline(job.graph), replay(job.graph)
    as_measured, replayed = (meter.compute_median(line) for line in lines)
    if as_measured.step_time_us <= 0:
        raise TraceError(STEP_TIME_ZERO(path=ranks[0].source))
    kernels = precision.detect_tf32(job.kernels, source.gpu) if source and finds_tf32 else job.kernels
    return MeasuredRun(
        tables=RunTables(kernels, job.steps, chosen, job.asked_steps),
        graph=job.graph,
        collectives=job.collectives,
        provenance=RunProvenance(
            ranks=ranks,
            ranks_read=len(trace.ranks),
            job_warnings=(*trace.warnings, *job.notes, *_warn_of_waits(chosen)),
            source=source,
            source_doubt=doubt,
            time_faults=time_faults,
            assumptions=(messages.RULES_OFF(rules=sorted(without)),) if without else (),
        ),
        results=RunResults(
            measured_step=as_measured,
            self_replay=SelfReplay(
                step_time_us=replayed.step_time_us,
                span_us=replayed.span_us,
                step_scale=StepScale(*(meter.measure_job_steps_ns(line) for line in lines)),
                error_pct=100 * (replayed.step_time_us / as_measured.step_time_us - 1),
                derived_wait_us=job.graph.derived_wait_ns / 1e3 / job.steps.height,
                kept_wait_us=meter.compute_median_sum_us(job.graph.kept_ns),
            ),
        ),
    )


def _warn_of_waits(chosen: pl.DataFrame) -> Iterator[Message]:
    """Warn of measured first steps whose kernels waited for work from before the recording."""
    waited_ns = chosen["waited_ns"].drop_nulls()
    if waited_ns.len():
        yield STEP_BEGINS_LATE(waited_us=max(waited_ns.to_list()) / 1e3)


def _correct_times(ranks: Sequence[RankTrace]) -> tuple[tuple[RankTrace, ...], tuple[Message, ...]]:
    """Correct the recorded times of each rank; return what was corrected, too."""
    corrected = [correct_times(rank) for rank in ranks]
    return tuple(rank for rank, _ in corrected), tuple(message for _, found in corrected for message in found)


def _resolve_named_gpu(name: str, trace: RankTrace) -> tuple[Resolution, Message | None]:
    """Resolve the GPU that the user named; add a warning if the trace describes another one."""
    named, (described, _) = resolve_gpu(name), _identify_gpu(trace)
    if described is None or described.gpu == named.gpu:
        return named, None
    return named, messages.SOURCE_GPU_RENAMED(described=described.gpu.slug, named=named.gpu.slug)


def _identify_gpu(trace: RankTrace) -> tuple[Resolution | None, Message | None]:
    """Identify the GPU that the trace describes; if that fails, return the reason."""
    device = trace.device
    if device is None:
        return None, None
    try:
        return identify_gpu(device.name, device.sms, device.memory_bytes, device.compute_capability), None
    except PredictorError as error:
        return None, messages.SOURCE_GPU_UNRESOLVED(reason=error.message)
