"""Warnings that apply to all figures of the report."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.idle import END_OF_STEP, IdleBreakdown
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.analysis.profiler_overhead import find_stalls_of_steps
from tracekit.analysis.waits import UnrecordedTime, measure_unrecorded_time
from tracekit.arrays import list_distinct, select_table
from tracekit.format import shorten_kernel_name
from tracekit.ingest.ranks import abbreviate_ranks
from tracekit.ingest.table_checks import NUMBERED_STEP
from tracekit.messages import Message
from tracekit.messages import reports as told
from tracekit.models.captured import UNKNOWN_CAPTURED_US
from tracekit.models.lookups import SKEWED_ALPHA, USUAL_ALPHA
from tracekit.parallelism.relayout import compute_seen_pct
from tracekit.prediction.batch import infer_rank_batch, note_open_acceptance
from tracekit.reporting.sections.recording import RankRecord, list_rank_doubts, merge_rank_doubts
from tracekit.run import MAX_TRUSTED_ERROR_PCT, MeasuredRun
from tracekit.workload.step_kinds import compute_time_share
from tracekit.workload.steps import is_whole_trace

MIN_RATIO_TO_MEDIAN = 1.3
"""Ratio to the median step, or its inverse, above which a step is named. Steps of one job differ by a few percent; the
warm-up finding uses the same ratio."""

MAX_DISTANCE_OF_MEDIAN = 0.02
"""How far a step may be from the median, as a part of it, to be called the median step."""

MAX_NAMED_STEPS = 3
"""Most steps that the warning names."""

BUSY = "busy"
THREAD_COLUMNS = ("pid", "tid")
HOST_CAUSES = (IdleCause.LAUNCH_BOUND, IdleCause.SYNC_BOUND)
"""Causes of idle time in which the CPU works towards a launch; before the second kind it had waited for the GPU."""


@dataclass(frozen=True, slots=True)
class UnlikeSteps:
    """Steps that differ from the median one.

    Attributes:
        descriptions: The steps that differ most.
        count: Number of steps that differ.
        step_count: Number of measured steps.
        median_us: The median step.
        has_median: Whether a step takes about as long; else the median is the mean of the two middle ones.
        mean_us: The mean step.
    """

    descriptions: tuple[Message, ...]
    count: int
    step_count: int
    median_us: float
    has_median: bool
    mean_us: float


def find_unlike_steps(
    run: MeasuredRun, idle: IdleBreakdown, measured: pl.DataFrame | None = None
) -> UnlikeSteps | None:
    """Find the measured steps that differ from the median one; None if there are none.

    ``measured`` has ``step`` and ``time_ns`` of the steps that were asked for; by default those of the run's timeline.
    """
    steps = run.measured_steps if measured is None else measured
    steps = select_table(steps, np.isin(steps["step"].to_numpy(), run.chosen_steps["step"].to_numpy()))
    times_ns = steps["time_ns"].to_numpy()
    median_ns = float(np.median(times_ns)) if times_ns.size else 0.0
    if not median_ns or not (np.abs(np.log(times_ns / median_ns)) > np.log(MIN_RATIO_TO_MEDIAN)).any():
        return None
    off = (pl.col("time_ns") / median_ns).log().abs()
    unlike = steps.filter(off > pl.lit(MIN_RATIO_TO_MEDIAN).log()).sort(off, "step", descending=[True, False])
    if unlike.is_empty():
        return None
    has_median = steps.select((off <= MAX_DISTANCE_OF_MEDIAN).any()).item()
    parts = _compare_parts(idle, steps)
    rows = unlike.head(MAX_NAMED_STEPS).select("step", "time_ns").iter_rows()
    described = (
        _describe_step(run, idle, parts.filter(step=step), step, time_ns, time_ns - median_ns) for step, time_ns in rows
    )
    mean_us = run.measured_step.mean_us
    return UnlikeSteps(tuple(described), unlike.height, steps.height, median_ns / 1e3, has_median, mean_us)


def _compare_parts(idle: IdleBreakdown, steps: pl.DataFrame) -> pl.DataFrame:
    """Compare the parts of each step, GPU work and idle causes, with the median step: ``more_ns`` is the difference."""
    ranks = idle.steps.group_by("step").agg(ranks=pl.len())
    pieces = pl.concat(
        [
            idle.segments.select("step", pl.col("cause").replace(HOST_CAUSES[1], HOST_CAUSES[0]), "time_ns"),
            idle.steps.select("step", pl.lit(BUSY).alias("cause"), time_ns="busy_ns"),
        ]
    )
    summed = pieces.group_by("step", "cause").agg(pl.col("time_ns").sum())
    every = steps.select("step").join(ranks, on="step").join(summed.select("cause").unique(), how="cross")
    each = every.join(summed, on=["step", "cause"], how="left").with_columns(
        time_ns=pl.col("time_ns").fill_null(0) / pl.col("ranks")
    )
    return each.select("step", "cause", more_ns=pl.col("time_ns") - pl.col("time_ns").median().over("cause"))


def _describe_step(
    run: MeasuredRun, idle: IdleBreakdown, parts: pl.DataFrame, step: int, time_ns: int, off_ns: float
) -> Message:
    """Describe a step by its time and, if one part makes up half of the difference, that part."""
    shown = {"step": step, "time_us": time_ns / 1e3}
    largest = parts.filter(pl.col("more_ns") * off_ns >= off_ns**2 / 2).sort(pl.col("more_ns").abs(), descending=True)
    if largest.is_empty():
        return told.STEP_TOOK(**shown)
    cause, more_ns = largest.select("cause", "more_ns").row(0)
    differs_us = abs(more_ns) / 1e3
    if cause == BUSY:
        worked = told.STEP_GPU_WORKED_MORE if off_ns > 0 else told.STEP_GPU_WORKED_LESS
        return worked(**shown, gpu_us=differs_us)
    if off_ns < 0:
        return told.STEP_GPU_IDLE_LESS(**shown, idle_us=differs_us)
    waited = {**shown, "idle_us": differs_us, "cause": CAUSE_MEANINGS[IdleCause(cause)]}
    ran = _find_host_work(run, idle, step) if cause == HOST_CAUSES[0] else None
    if ran is None:
        return told.STEP_GPU_IDLE_MORE(**waited)
    return (
        told.STEP_HELD_BY_HOST_WORK(**waited, host_work=ran) if ran else told.STEP_HELD_BY_UNKNOWN_HOST_WORK(**waited)
    )


def _find_host_work(run: MeasuredRun, idle: IdleBreakdown, step: int) -> str | None:
    """Find what the CPU ran during most of the step's longest wait for a launch; empty if nothing was recorded.

    None where it can't be told: no kernel waited, its launch wasn't recorded, or several ranks were read.
    """
    waits = idle.segments.filter(pl.col("step") == step, pl.col("cause").is_in(HOST_CAUSES)).drop_nulls("kernel")
    if waits.is_empty() or len(run.ranks) > 1 or run.trace.calls.is_empty():
        return None
    kernel, waited_ns = waits.group_by("kernel").agg(pl.col("time_ns").sum()).sort("time_ns", "kernel").row(-1)
    start_ns, call = run.kernels.select("ts_ns", "call").row(kernel)
    if call is None:
        return None
    rank = run.trace
    thread = rank.calls[call].select(THREAD_COLUMNS)
    spans = [
        table.select("name", "ts_ns", "dur_ns", *THREAD_COLUMNS) for table in (rank.ops, rank.calls, rank.annotations)
    ]
    end_ns = pl.min_horizontal(pl.col("ts_ns") + pl.col("dur_ns"), start_ns)
    within_ns = end_ns - pl.max_horizontal(pl.col("ts_ns"), start_ns - waited_ns)
    ran = pl.concat(spans).join(thread, on=THREAD_COLUMNS, how="semi").filter(within_ns >= waited_ns / 2)
    ran = ran.filter(~pl.col("name").str.contains(NUMBERED_STEP)).sort("dur_ns", "name")
    return shorten_kernel_name(ran["name"][0]) if ran.height else ""


def build_warning(found: UnlikeSteps) -> Message:
    """Build the warning."""
    write = told.STEPS_DIFFER if found.has_median else told.STEPS_DIFFER_FROM_MEAN
    return write(
        differing=found.count,
        measured=found.step_count,
        median_us=found.median_us,
        mean_us=found.mean_us,
        min_ratio=MIN_RATIO_TO_MEDIAN,
        largest=found.descriptions,
    )


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
        doubts: Each rank, with what is doubtful about its recording (:mod:`tracekit.reporting.sections.recording`).
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

    ``model`` is what the model alone says of each kernel on the GPU, from
    :func:`tracekit.reporting.kernel_rows.predict_on_source`; ``None`` asks it for the kernels that matter.
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

    Of the run's kernels only the collectives have to be here; ``evidence`` is of all its ranks.
    """
    return tuple(_iter_warnings(run, evidence))


def _iter_warnings(run: MeasuredRun, evidence: JobEvidence) -> Iterator[Message]:
    yield from _warn_of_capture(run)
    yield from run.provenance.job_warnings
    yield from merge_rank_doubts(evidence.doubts)
    yield from run.provenance.assumptions
    yield from _warn_of_other_batches(run)
    if found := find_unlike_steps(run, evidence.idle, evidence.steps):
        yield build_warning(found)
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


SEEN_ALL_PCT = 99.5
"""Of a CPU's time in ops that were measured with the same inputs, from which nothing is said of the rest."""


def _warn_of_capture(run: MeasuredRun) -> Iterator[Message]:
    """Warn if nothing was measured, and of kernels whose time isn't even predicted."""
    facts = run.trace.capture_facts
    if facts is None:
        return
    if facts.measured_by:
        seen_pct = compute_seen_pct(run.program)
        on_cpu = run.gpu is not None and run.gpu.is_cpu
        say = told.CPU_OPS_SCALED if on_cpu else told.CAPTURE_SHARPENED
        if not on_cpu or seen_pct < SEEN_ALL_PCT:
            yield say(trace=facts.measured_by, seen_pct=seen_pct, gpu=facts.gpu)
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
    if run.program.has_predicted_times:
        return
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
