"""Warnings that apply to all figures of the report."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from tracekit.analysis.idle import END_OF_STEP, IdleBreakdown
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.profiler_overhead import find_stalls_of_steps
from tracekit.analysis.unrecorded_work import UnrecordedTime, measure_unrecorded_time
from tracekit.arrays import list_distinct
from tracekit.format import shorten_kernel_name
from tracekit.ingest.ranks import abbreviate_ranks
from tracekit.messages import Message
from tracekit.messages import reports as told
from tracekit.models.captured import UNKNOWN_CAPTURED_US
from tracekit.models.lookups import SKEWED_ALPHA, USUAL_ALPHA
from tracekit.parallelism.relayout import compute_seen_pct
from tracekit.prediction.batch import infer_rank_batch, note_open_acceptance
from tracekit.reporting.sections import unlike_steps
from tracekit.reporting.sections.rank_doubts import RankRecord, list_rank_doubts, merge_rank_doubts
from tracekit.run import MAX_TRUSTED_ERROR_PCT, MeasuredRun
from tracekit.workload.step_kinds import compute_time_share
from tracekit.workload.steps import is_whole_trace

# Step time with the profiler over step time without it, from which on the report warns.
MIN_OVERHEAD_RATIO = 1.03

# Fraction of the measured steps in which the profiler's own work delayed the host, from which on the report warns.
MIN_STALL_FRACTION = 0.005

# Percent of a captured program's GPU time that the indices of look-ups set, from which on the report warns.
MIN_ASSUMED_PCT = 1.0

# Fraction of the step in gaps within CUDA graphs that stay as measured, from which on the report warns.
MIN_HIDDEN_FRACTION = 0.05

# Fraction of the step in which the GPU stalled for no recorded reason, from which on the report warns.
MIN_STALLED_FRACTION = 0.01

# Fraction of the step in idle time without any known cause, from which on the report warns.
MIN_UNEXPLAINED_FRACTION = 0.1


@dataclass(frozen=True, slots=True)
class JobEvidence:
    """What warnings need of all ranks of a job, besides its measured run.

    Attributes:
        doubts: Each rank, with what is doubtful about its recording (:mod:`tracekit.reporting.sections.rank_doubts`).
        idle: Causes of the GPUs' idle time.
        kernels: ``op`` and ``name`` of the kernels that end it.
        steps: ``step`` and ``time_ns`` of the steps that were asked for, all ranks together.
        stalled_us: How long a mean rank's GPU stood still for no recorded reason in the median step.
        held_us: How long the profiler held up the CPU in the measured steps, in the mean rank.
        held_by: Its work that did.
        unrecorded: Waits for work that isn't in the traces, in the mean step of the mean rank; None without any.
        acceptance: What is open about the tokens that speculative decoding accepts.
        dropped: Inferred dependencies that were left out, as they contradict others.
    """

    doubts: tuple[tuple[int, tuple[Message, ...]], ...]
    idle: IdleBreakdown
    kernels: pl.DataFrame
    steps: pl.DataFrame
    stalled_us: float
    held_us: float
    held_by: tuple[str, ...]
    unrecorded: UnrecordedTime | None
    acceptance: tuple[Message, ...]
    dropped: int


def collect_evidence(run: MeasuredRun, idle: IdleBreakdown, model: pl.DataFrame | None = None) -> JobEvidence:
    """Collect the evidence of a run whose ranks are all in memory.

    Args:
        run: The measured run.
        idle: Causes of its GPU's idle time.
        model: What the model alone says of each kernel on the GPU, from
            :func:`tracekit.reporting.kernel_rows.predict_on_source`; ``None`` to ask it for the kernels that matter.
    """
    held = pl.concat(table[["name", "dur_ns"]] for table in find_stalls_of_steps(run.program))
    return JobEvidence(
        doubts=tuple((one.trace.rank or 0, list_rank_doubts(one)) for one in _list_records(run, model)),
        idle=idle,
        kernels=run.kernels,
        steps=run.measured_steps,
        stalled_us=run.program.step_timer.compute_median_sum_us(run.graph.waits.stalled_ns),
        held_us=int(held["dur_ns"].sum()) / 1e3 / len(run.ranks),
        held_by=tuple(sorted(list_distinct(held["name"]))),
        unrecorded=measure_unrecorded_time(run.program),
        acceptance=tuple(note_open_acceptance(infer_rank_batch(run.program))),
        dropped=run.graph.dropped,
    )


def _list_records(run: MeasuredRun, model: pl.DataFrame | None) -> Iterator[RankRecord]:
    """List the recordings of a run's ranks."""
    faults = run.provenance.rank_faults or ((),) * len(run.ranks)
    for rank, own in zip(run.ranks, faults, strict=True):
        rows = run.kernels["rank"] == (rank.rank or 0)
        kernels, known = run.kernels, model
        if len(run.ranks) > 1:
            kernels, known = kernels.filter(rows), None if model is None else model.filter(rows)
        yield RankRecord(rank, own, kernels, is_whole_trace(run.steps), run.gpu, known)


def build_warnings(run: MeasuredRun, idle: IdleBreakdown, model: pl.DataFrame | None = None) -> tuple[Message, ...]:
    """Build the warnings of a run whose ranks are all in memory; arguments as for :func:`collect_evidence`."""
    return build_job_warnings(run, collect_evidence(run, idle, model))


def build_job_warnings(run: MeasuredRun, evidence: JobEvidence) -> tuple[Message, ...]:
    """Build the warnings of a job.

    Args:
        run: The measured run, of whose kernels only the collectives have to be here.
        evidence: Of all its ranks.
    """
    return tuple(_iter_warnings(run, evidence))


def _iter_warnings(run: MeasuredRun, evidence: JobEvidence) -> Iterator[Message]:
    yield from _warn_of_capture(run)
    yield from run.provenance.job_warnings
    yield from merge_rank_doubts(evidence.doubts)
    yield from run.provenance.assumptions
    yield from _warn_of_other_batches(run)
    if found := unlike_steps.find_unlike_steps(run, evidence.idle, evidence.steps):
        yield unlike_steps.build_warning(found)
    yield from evidence.acceptance
    if waited := evidence.unrecorded:
        yield told.UNRECORDED_WORK(waits=waited.waits, time_us=waited.time_us)
    if run.provenance.source_doubt:
        yield run.provenance.source_doubt
    if abs(run.self_replay.error_pct) > MAX_TRUSTED_ERROR_PCT:
        yield told.REPLAY_INEXACT(error_pct=run.self_replay.error_pct)
    yield from _warn_of_missing_ranks(run)
    yield from _warn_of_profiler_overhead(run)
    if evidence.held_us > MIN_STALL_FRACTION * run.measured_step.span_us:
        yield told.PROFILER_HOLDS_CPU(held_us=evidence.held_us, kinds=list(evidence.held_by))
    yield from _warn_of_kept_idle(run, evidence)
    if evidence.dropped:
        yield told.DEPENDENCIES_DROPPED(dependencies=evidence.dropped)


def _warn_of_kept_idle(run: MeasuredRun, evidence: JobEvidence) -> Iterator[Message]:
    """Warn if much of the step is idle time that no launch and no wait explains: within CUDA graphs, or elsewhere."""
    step_us, idle = run.measured_step.step_time_us, evidence.idle.scale_to(run.measured_step)
    causes_us = {cause: time_us for cause, time_us, _ in idle.sum_by_cause().iter_rows()}
    hidden_us, idle_us = (causes_us.get(cause, 0.0) for cause in (IdleCause.IN_GRAPH, IdleCause.UNEXPLAINED))
    if hidden_us > MIN_HIDDEN_FRACTION * step_us:
        yield told.GRAPH_GAPS_KEPT(idle_us=hidden_us, step_pct=100 * hidden_us / step_us)
    stalled = min(evidence.stalled_us, idle_us) / step_us
    if stalled > MIN_STALLED_FRACTION:
        yield told.GPU_STALLED(step_pct=100 * stalled)
    part = idle_us / step_us
    if part - stalled <= MIN_UNEXPLAINED_FRACTION:
        return
    op = idle.sum_by_op(evidence.kernels, IdleCause.UNEXPLAINED)["op"][0]
    if op == END_OF_STEP:
        yield told.IDLE_UNEXPLAINED_AT_END(step_pct=100 * part, idle_us=idle_us)
    else:
        yield told.IDLE_UNEXPLAINED(step_pct=100 * part, idle_us=idle_us, kernel=shorten_kernel_name(op))


def _warn_of_capture(run: MeasuredRun) -> Iterator[Message]:
    """Warn if nothing was measured, and of kernels whose time isn't even predicted."""
    facts = run.trace.capture_facts
    if facts is None:
        return
    if facts.measured_by:
        seen_pct = compute_seen_pct(run.program)
        yield told.CAPTURE_SHARPENED(trace=facts.measured_by, seen_pct=seen_pct, gpu=facts.gpu)
    else:
        yield told.NOTHING_MEASURED(gpu=facts.gpu)
    if facts.collectives:
        yield told.CAPTURED_COLLECTIVES_MISSING(collectives=facts.collectives)
    # Warps of a look-up wait for its rows, whichever they are.
    drawn = pl.col("serial_clocks").is_not_null() & pl.col("warp_clocks").is_null()
    assumed_pct = compute_time_share(run.kernels, "dur_ns", drawn)
    if assumed_pct > MIN_ASSUMED_PCT and run.trace.indices is None:
        yield told.INDICES_ASSUMED(time_pct=assumed_pct, alpha=f"{USUAL_ALPHA:g}", skewed=f"{SKEWED_ALPHA:g}")
    unknown = run.kernels.filter(pl.col("work_from").is_null()).height
    if unknown:
        yield told.CAPTURED_WORK_UNKNOWN(
            kernels=unknown, kernels_pct=100 * unknown / run.kernels.height, each_us=UNKNOWN_CAPTURED_US
        )


def _warn_of_other_batches(run: MeasuredRun) -> Iterator[Message]:
    """Warn if the engine also ran batches of other kinds than the measured ones."""
    if not run.steps["kind"].count():
        return
    others = run.steps.filter(~pl.col("kind").is_in(run.chosen_steps["kind"].implode()))
    kinds = others.group_by("kind", maintain_order=True).agg(pl.col("step").n_unique()).iter_rows()
    if others.height:
        batches = [
            (told.BATCH_OF_A_KIND if count == 1 else told.BATCHES_OF_A_KIND)(count=count, kind=kind)
            for kind, count in kinds
        ]
        yield told.OTHER_BATCHES(batches=batches, step=others["step"][0])


def _warn_of_profiler_overhead(run: MeasuredRun) -> Iterator[Message]:
    """Warn about the profiler's overhead, if the step was also timed without the profiler."""
    without_us = run.trace.unprofiled_step_us
    if without_us and run.measured_step.step_time_us > MIN_OVERHEAD_RATIO * without_us:
        yield told.PROFILER_SLOWS_STEP(without_us=without_us, with_us=run.measured_step.step_time_us)


def _warn_of_missing_ranks(run: MeasuredRun) -> Iterator[Message]:
    """Warn about assumptions due to missing ranks or to ranks that contradict one another."""
    world, read = run.trace.world_size, len(run.ranks)
    kept_us = run.self_replay.kept_wait_us
    if read == 1 < world:
        yield told.ONE_RANK_READ(ranks=world, kept_us=kept_us)
    elif read < world:
        yield told.SOME_RANKS_READ(ranks_read=read, ranks=world, kept_us=kept_us)
    if run.collectives is None:
        return
    for mismatch in run.collectives.mismatches:
        yield told.RANKS_DISAGREE(mismatch=mismatch)
    alone = sorted({rank.rank or 0 for rank in run.ranks} - set(run.collectives.clock_offset_ns))
    if run.collectives.table.is_empty():
        yield told.RANKS_NOT_JOINED()
    elif alone:
        yield told.CLOCKS_UNALIGNED(ranks=abbreviate_ranks(alone))
