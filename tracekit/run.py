"""The measured run: a recorded program, where it comes from, the measured step, and the graph's own replay error."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from predictors import Gpu, PredictorError, Resolution, identify_gpu, resolve_gpu
from predictors.kernel_identity import parse_framework
from tracekit.arrays import find_nulls, select_table
from tracekit.errors import RequestError, TraceError, TracekitError
from tracekit.graph import Graph
from tracekit.graph.ranks import Collectives
from tracekit.hosts import HostSpeed, measure_host_speed
from tracekit.inference_rules import select_rules
from tracekit.ingest import correlations
from tracekit.ingest.batches import find_speculation
from tracekit.joined_ranks import join_rank_traces
from tracekit.messages import Message, ProgressCallback, requests
from tracekit.messages import requests as messages
from tracekit.messages.traces import STEP_BEGINS_LATE, STEP_TIME_ZERO
from tracekit.models.llm import read_model_config
from tracekit.models.lookups import IndexPattern, find_table_skews
from tracekit.program import Program
from tracekit.replay.engine import Timeline, build_measured_timeline, replay
from tracekit.replay.step_time import StepScale, StepTime, StepTimer, merge_ranks
from tracekit.rules import RuleNames
from tracekit.timing import correct_times
from tracekit.trace import RankTrace, Trace
from tracekit.workload.steps import drop_first_step

MAX_TRUSTED_ERROR_PCT = 5.0
"""Replay error up to which prediction intervals hold; above it, the trace has waits that the graph doesn't explain."""


@dataclass(frozen=True, slots=True)
class SelfReplay:
    """Replay of the measured kernels with all waits derived from the graph; the difference left is the graph's error.

    Attributes:
        step_time_us: The median step as replayed.
        span_us: All chosen steps as replayed.
        error_pct: Against the measured one.
        derived_wait_us: Waiting of CPU threads, of collectives for ranks that were read, and of kernels for the one
            before, that was taken out of the measured run and derived again, per step and rank.
        kept_wait_us: Waiting of collectives that is kept as measured, in the median step of a rank.
    """

    step_time_us: float
    span_us: float
    error_pct: float
    derived_wait_us: float
    kept_wait_us: float


@dataclass(frozen=True, slots=True)
class RunProvenance:
    """Where a run comes from besides its traces, and what was found or assumed on the way.

    Attributes:
        ranks_read: Number of ranks whose traces were read; fewer may be measured.
        job_warnings: Warnings about the set of ranks that was given.
        source: The GPU the run was recorded on and how it was identified; ``None`` if it isn't known.
        source_doubt: Why the GPU isn't known although the trace describes one, or that the trace describes another
            GPU than the user named.
        rank_faults: Recorded times of each rank that break physics and were corrected.
        assumptions: Deviations from the recording.
    """

    ranks_read: int
    job_warnings: tuple[Message, ...]
    source: Resolution | None
    source_doubt: Message | None
    rank_faults: tuple[tuple[Message, ...], ...] = ()
    assumptions: tuple[Message, ...] = ()

    @property
    def time_faults(self) -> tuple[Message, ...]:
        """Recorded times of all ranks that break physics and were corrected."""
        return tuple(fault for found in self.rank_faults for fault in found)


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

    What-if edits and other layouts make programs of their own from its program; the run stays what was measured.

    Attributes:
        program: The recorded program: kernels, steps, graph and traces.
        provenance: The GPU, warnings and assumptions.
        results: The measured step and the self-replay.
    """

    program: Program
    provenance: RunProvenance
    results: RunResults

    @property
    def kernels(self) -> pl.DataFrame:
        """The kernel table."""
        return self.program.kernels

    @property
    def steps(self) -> pl.DataFrame:
        """All steps of the trace."""
        return self.program.steps

    @property
    def chosen_steps(self) -> pl.DataFrame:
        """The steps that are measured."""
        return self.program.chosen_steps

    @property
    def asked_steps(self) -> pl.DataFrame:
        """The steps that were asked for."""
        return self.program.tables.asked_steps

    @property
    def is_in_chosen_steps(self) -> pl.Series:
        """Boolean mask of the kernels that belong to a chosen step."""
        return self.program.is_in_chosen_steps

    @property
    def graph(self) -> Graph:
        """The dependency graph."""
        return self.program.graph

    @property
    def collectives(self) -> Collectives | None:
        """The collectives at which the ranks meet; ``None`` for one rank."""
        return self.program.collectives

    @property
    def trace(self) -> RankTrace:
        """The trace of the rank, or of the first of several ranks."""
        return self.program.trace

    @property
    def ranks(self) -> tuple[RankTrace, ...]:
        """The traces of all measured ranks."""
        return self.program.ranks

    @property
    def measured_timeline(self) -> Timeline:
        """The timeline as it was recorded."""
        return self.program.measured_timeline

    @cached_property
    def measured_steps(self) -> pl.DataFrame:
        """The steps asked for that have times, as :func:`tracekit.replay.step_time.merge_ranks` returns them."""
        table = merge_ranks(self.program.step_timer.tabulate(self.measured_timeline))
        asked = np.isin(table["step"].to_numpy(), self.asked_steps["step"].to_numpy())
        return select_table(table, asked & ~find_nulls(table["time_ns"]))

    @cached_property
    def host_speed(self) -> HostSpeed | None:
        """How fast its host is; None where too few ops tell it."""
        return measure_host_speed(self.ranks)

    @property
    def source(self) -> Resolution | None:
        """The GPU the run was recorded on and how it was identified."""
        return self.provenance.source

    @property
    def gpu(self) -> Gpu | None:
        """The GPU the run was recorded on."""
        return self.source.gpu if self.source else None

    @property
    def is_captured(self) -> bool:
        """Whether it was captured without a GPU, so that its times are predictions too."""
        return self.program.is_captured

    @property
    def measured_step(self) -> StepTime:
        """The median step as recorded."""
        return self.results.measured_step

    @property
    def self_replay(self) -> SelfReplay:
        """The median step as replayed with the measured kernel times."""
        return self.results.self_replay

    def replace_source(self, source: Resolution | None) -> "MeasuredRun":
        """Return the run as recorded on another GPU."""
        return replace(self, provenance=replace(self.provenance, source=source))

    def replace_chosen_steps(self, chosen_steps: pl.DataFrame) -> "MeasuredRun":
        """Return the run with other chosen steps; the measured step stays that of all of them."""
        return replace(self, program=self.program.replace_tables(chosen_steps=chosen_steps))

    def measure_steps(self, asked: pl.DataFrame) -> "MeasuredRun":
        """Return the run with other steps measured.

        Args:
            asked: The steps, some of those of the trace.

        Raises:
            StepError: Nothing ran on the GPU in any of them.
        """
        chosen = drop_first_step(asked, self.steps, self.kernels)
        program = self.program.replace_tables(asked_steps=asked, chosen_steps=chosen)
        lines = self.measured_timeline, replay(self.graph)
        return replace(self, program=program, results=_measure_results(program.step_timer, program.graph, *lines))


def prepare_run(
    trace: Trace,
    *,
    source_gpu: str | None = None,
    steps: str | None = None,
    rank: int | None = None,
    without_rules: Sequence[str] = (),
    model_config: str | Path | None = None,
    framework: str | None = None,
    indices: IndexPattern | None = None,
    accepted_tokens: float | None = None,
    progress: ProgressCallback = lambda stage: None,
) -> MeasuredRun:
    """Classify a trace's kernels, build the dependency graph, and replay it.

    Args:
        trace: The trace.
        source_gpu: The GPU it was recorded on, if the trace doesn't name it or names it wrongly.
        steps: The steps to measure, ``"7"`` or ``"7:9"``; all by default.
        rank: The rank to measure; by default all ranks that were read, together.
        without_rules: Names of inference rules to switch off; ``tracekit info -v`` lists them.
        model_config: The ``config.json`` of the model that a serving engine ran; by default the one given with the
            traces, if any.
        framework: The serving engine that ran it, such as ``"vllm"`` or ``"vllm==0.19.0"``.
        indices: How rows of embedding tables are looked up; by default unknown, or as a captured program has it.
        accepted_tokens: Tokens that each sequence gets in a step of speculative decoding; by default unknown.
        progress: Called with the name of each stage as it begins.

    Raises:
        ModelConfigError: ``model_config`` can't be read, or describes layers that aren't known.
        StepError: The trace doesn't have these steps.
        TraceError: The trace doesn't have this rank, or all its steps have zero duration.
        RequestError: No batch of the trace verifies so many tokens for a sequence.
        PredictorError: ``source_gpu`` is unknown or ambiguous, or ``framework`` is unknown.
        RuleError: There is no such inference rule.
        TracekitError: ``trace`` is a file name instead of a trace.
    """
    if not isinstance(trace, Trace):
        given = repr(trace) if isinstance(trace, str | Path) else f"An object of type {type(trace).__name__}"
        raise TracekitError(messages.NOT_LOADED(given=given))
    ranks = trace.ranks if rank is None else (trace.rank(rank),)
    without = select_rules(without_rules)
    if not correlations.RULE.is_on(without):
        ranks = tuple(map(correlations.drop_ordered_ids, ranks))
    if model_config is not None:
        model = read_model_config(model_config)
        ranks = tuple(replace(each, model=model) for each in ranks)
    ranks = tuple(replace(each, indices=indices or find_table_skews(each.capture_facts)) for each in ranks)
    if accepted_tokens is not None:
        check_accepted_tokens(ranks[0], accepted_tokens)
    corrected = [correct_times(each) for each in ranks]
    source, doubt = identify_run_gpu(source_gpu, ranks[0])
    gpu = source.gpu if source else None
    job = join_rank_traces([each for each, _ in corrected], steps, gpu, without, progress)
    progress(requests.REPLAYING())
    meter = job.tables.step_timer
    lines = build_measured_timeline(job.graph), replay(job.graph)
    results = _measure_results(meter, job.graph, *lines)
    if results.measured_step.step_time_us <= 0:
        raise TraceError(STEP_TIME_ZERO(path=job.ranks[0].source))
    return MeasuredRun(
        program=Program(
            tables=job.tables,
            graph=job.graph,
            collectives=job.collectives,
            ranks=job.ranks,
            step_scale=StepScale(*(meter.measure_job_steps_ns(line) for line in lines)),
            kernel_factor=np.ones(job.tables.kernels.height),
            framework=parse_named_framework(framework),
            accepted_tokens=accepted_tokens,
        ),
        provenance=RunProvenance(
            ranks_read=len(trace.ranks),
            job_warnings=(
                *trace.warnings,
                *job.notes,
                *warn_of_waits(job.tables.chosen_steps),
                *results.measured_step.list_doubts(),
            ),
            source=source,
            source_doubt=doubt,
            rank_faults=tuple(faults for each, faults in corrected if any(each is one for one in job.ranks)),
            assumptions=note_rules_off(without),
        ),
        results=results,
    )


def _measure_results(meter: StepTimer, graph: Graph, recorded: Timeline, self_replayed: Timeline) -> RunResults:
    """Measure the median step, as recorded and as replayed.

    Raises:
        StepError: Nothing ran on the GPU in any of the steps.
    """
    measured, replayed = (meter.compute_median(line) for line in (recorded, self_replayed))
    return RunResults(
        measured_step=measured,
        self_replay=SelfReplay(
            step_time_us=replayed.step_time_us,
            span_us=replayed.span_us,
            error_pct=100 * (replayed.step_time_us / measured.step_time_us - 1) if measured.step_time_us else 0.0,
            derived_wait_us=meter.compute_median_wait_us(recorded, graph.waits.derived_ns),
            kept_wait_us=meter.compute_median_sum_us(graph.kept_ns),
        ),
    )


def parse_named_framework(name: str | None) -> tuple[str, str | None] | None:
    """Parse the serving engine that the user named, and its version; None where none was named."""
    return parse_framework(name) if name else None


def note_rules_off(without: RuleNames) -> tuple[Message, ...]:
    """Note which inference rules a run is replayed without; nothing where all are in use."""
    return (messages.RULES_OFF(rules=sorted(without)),) if without else ()


def check_accepted_tokens(trace: RankTrace, accepted: float) -> None:
    """Raise :class:`~tracekit.errors.RequestError` if no batch verifies so many tokens for a sequence."""
    found = find_speculation(trace)
    if found is None:
        raise RequestError(requests.TOKENS_NOT_SPECULATED())
    if accepted > found.per_sequence:
        raise RequestError(requests.ACCEPTED_TOKENS_TOO_MANY(accepted=accepted, verified=found.per_sequence))


def warn_of_waits(chosen: pl.DataFrame) -> Iterator[Message]:
    """Warn of measured first steps whose kernels waited for work from before the recording."""
    waited_ns = chosen["waited_ns"].drop_nulls()
    if waited_ns.len():
        yield STEP_BEGINS_LATE(waited_us=max(waited_ns.to_list()) / 1e3)


def identify_run_gpu(name: str | None, trace: RankTrace) -> tuple[Resolution | None, Message | None]:
    """Identify the GPU of a run, by the user's name or else by its trace; and return what is doubtful about it."""
    return _resolve_named_gpu(name, trace) if name else _identify_gpu(trace)


def _resolve_named_gpu(name: str, trace: RankTrace) -> tuple[Resolution, Message | None]:
    """Resolve the GPU that the user named; add a warning if the trace describes another one."""
    named, (described, _) = resolve_gpu(name), _identify_gpu(trace)
    if described is None or described.gpu == named.gpu:
        return named, None
    return named, messages.SOURCE_GPU_RENAMED(described=described.gpu.slug, named=named.gpu.slug)


def find_recorded_gpu(trace: RankTrace) -> Gpu | None:
    """Find the GPU that a trace describes; None if it doesn't."""
    found, _ = _identify_gpu(trace)
    return found.gpu if found else None


def _identify_gpu(trace: RankTrace) -> tuple[Resolution | None, Message | None]:
    """Identify the GPU that the trace describes; if that fails, return the reason."""
    device, facts = trace.device, trace.capture_facts
    if facts is not None:
        return resolve_gpu(facts.gpu), None
    if device is None:
        return None, None
    try:
        return identify_gpu(device.name, device.sms, device.memory_bytes, device.compute_capability), None
    except PredictorError as error:
        return None, messages.SOURCE_GPU_UNRESOLVED(reason=error.message)
