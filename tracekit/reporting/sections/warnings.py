"""Warnings that apply to all figures of the report."""

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from tracekit import secret_scan
from tracekit.analysis.below_bound import find_below_bound
from tracekit.analysis.clock_speed import measure_clock_speed
from tracekit.analysis.graph_replays import count_replayed_nodes
from tracekit.analysis.idle import END_OF_STEP, IdleBreakdown
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.lost_kernels import count_lost_launches, lacks_graphs
from tracekit.analysis.profiler_overhead import find_stalls_of_steps
from tracekit.analysis.unrecorded_work import measure_unrecorded_time
from tracekit.capture_facts import UNKNOWN_CAPTURED_US
from tracekit.format import shorten_kernel_name
from tracekit.index_distribution import SKEWED_ALPHA, USUAL_ALPHA
from tracekit.ingest.ranks import abbreviate_ranks
from tracekit.ingest.whole_graphs import is_whole_graph
from tracekit.messages import Message
from tracekit.messages import report_warnings as told
from tracekit.messages.model_configs import CONFIG_WITHOUT_FIT
from tracekit.messages.trace_contents import DEVICE_NOT_RECORDED
from tracekit.parallelism.relayout import compute_seen_pct
from tracekit.prediction.batch import infer_rank_batch, note_open_acceptance
from tracekit.reporting.sections import unlike_steps
from tracekit.run import MAX_TRUSTED_ERROR_PCT, MeasuredRun
from tracekit.workload.contradicted_names import REPLACED_NAME
from tracekit.workload.gpus import count_gpus_per_rank
from tracekit.workload.steps import count_optimizer_steps, is_whole_trace
from tracekit.workload.time_share import compute_time_share
from tracekit.workload.work_inference.model_layers import describe_misfit

# Percent of the GPU's time without recorded launches, from which on the report warns.
MIN_UNLAUNCHED_PCT = 50.0

# Fraction of launches without a kernel, from which on the report warns; public traces have fewer.
MIN_LOST_FRACTION = 0.02

# Step time with the profiler over step time without it, from which on the report warns.
MIN_OVERHEAD_RATIO = 1.03

# Fraction of the measured steps in which the profiler's own work delayed the host, from which on the report warns.
MIN_STALL_FRACTION = 0.005

# Percent of the GPU's time in attention with an unknown mask, from which on the report warns.
MIN_UNMASKED_PCT = 5.0

# Percent of a captured program's GPU time that the indices of look-ups set, from which on the report warns.
MIN_ASSUMED_PCT = 1.0

# Fraction of the step in gaps within CUDA graphs that stay as measured, from which on the report warns.
MIN_HIDDEN_FRACTION = 0.05

# Fraction of the step in which the GPU stalled for no recorded reason, from which on the report warns.
MIN_STALLED_FRACTION = 0.01

# Fraction of the step in idle time without any known cause, from which on the report warns.
MIN_UNEXPLAINED_FRACTION = 0.1


def build_warnings(run: MeasuredRun, idle: IdleBreakdown, model: pl.DataFrame | None = None) -> tuple[Message, ...]:
    """Build the warnings.

    Args:
        run: The measured run.
        idle: Causes of its GPU's idle time.
        model: What the model alone says of each kernel on the GPU, from
            :func:`tracekit.reporting.kernel_rows.predict_on_source`; ``None`` to ask it for the kernels that matter.
    """
    return tuple(_iter_warnings(run, idle, model))


def _iter_warnings(run: MeasuredRun, idle: IdleBreakdown, model: pl.DataFrame | None) -> Iterator[Message]:
    if run.trace.is_synthetic:
        yield told.TIMES_SYNTHETIC()
    yield from _warn_of_capture(run)
    yield from run.provenance.job_warnings
    yield from _iter_rank_warnings(run)
    yield from run.provenance.time_faults
    below = find_below_bound(run.kernels, run.gpu, model)
    if below:
        yield below
    yield from run.provenance.assumptions
    yield from _warn_of_unmarked_steps(run)
    yield from _warn_of_other_batches(run)
    if found := unlike_steps.find_unlike_steps(run, idle):
        yield unlike_steps.build_warning(found)
    yield from note_open_acceptance(infer_rank_batch(run.program))
    yield from _warn_of_several_gpus(run)
    yield from _warn_of_missing_launches(run)
    yield from _warn_of_lost_kernels(run)
    yield from _warn_of_whole_graphs(run)
    yield from _warn_of_incomplete_replays(run)
    if waited := measure_unrecorded_time(run.program):
        yield told.UNRECORDED_WORK(waits=waited.waits, time_us=waited.time_us)
    yield from _warn_of_contradicted_names(run)
    yield from _warn_of_unknown_masks(run)
    yield from _warn_of_model_config(run)
    if run.provenance.source_doubt:
        yield run.provenance.source_doubt
    yield from _warn_of_low_clock(run, None if model is None else model["model_us"])
    if abs(run.self_replay.error_pct) > MAX_TRUSTED_ERROR_PCT:
        yield told.REPLAY_INEXACT(error_pct=run.self_replay.error_pct)
    yield from _warn_of_missing_ranks(run)
    yield from _warn_of_profiler_overhead(run)
    yield from _warn_of_profiler_stalls(run)
    yield from _warn_of_kept_idle(run, idle.scale_to(run.measured_step))
    if run.graph.dropped:
        yield told.DEPENDENCIES_DROPPED(dependencies=run.graph.dropped)


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


def _warn_of_kept_idle(run: MeasuredRun, idle: IdleBreakdown) -> Iterator[Message]:
    """Warn if much of the step is idle time that no launch and no wait explains: within CUDA graphs, or elsewhere."""
    step_us = run.measured_step.step_time_us
    causes_us = dict(idle.sum_by_cause().select("cause", "time_us").iter_rows())
    hidden_us, idle_us = (causes_us.get(cause, 0.0) for cause in (IdleCause.IN_GRAPH, IdleCause.UNEXPLAINED))
    if hidden_us > MIN_HIDDEN_FRACTION * step_us:
        yield told.GRAPH_GAPS_KEPT(idle_us=hidden_us, step_pct=100 * hidden_us / step_us)
    stalled_us = run.program.step_timer.compute_median_sum_us(run.graph.waits.stalled_ns)
    stalled = min(stalled_us, idle_us) / step_us
    if stalled > MIN_STALLED_FRACTION:
        yield told.GPU_STALLED(step_pct=100 * stalled)
    part = idle_us / step_us
    if part - stalled <= MIN_UNEXPLAINED_FRACTION:
        return
    op = idle.sum_by_op(run.kernels, IdleCause.UNEXPLAINED)["op"][0]
    if op == END_OF_STEP:
        yield told.IDLE_UNEXPLAINED_AT_END(step_pct=100 * part, idle_us=idle_us)
    else:
        yield told.IDLE_UNEXPLAINED(step_pct=100 * part, idle_us=idle_us, kernel=shorten_kernel_name(op))


def _warn_of_low_clock(run: MeasuredRun, model_us: pl.Series | None) -> Iterator[Message]:
    """Warn if the GPU was slower than GPUs of its model usually are."""
    found = measure_clock_speed(run.kernels, run.gpu, model_us) if run.gpu else None
    if found and found.is_slow:
        fastest, slowest = found.families
        yield told.CLOCK_LOW(
            min_ratio=found.min_ratio, max_ratio=found.max_ratio, fastest_family=fastest, slowest_family=slowest
        )


def _warn_of_unmarked_steps(run: MeasuredRun) -> Iterator[Message]:
    """Warn if an unmarked trace, which counts as one step, holds several optimizer steps."""
    updates = count_optimizer_steps(run.trace) if is_whole_trace(run.steps) else 0
    if updates > 1:
        yield told.STEPS_UNMARKED(updates=updates)


def _warn_of_other_batches(run: MeasuredRun) -> Iterator[Message]:
    """Warn if the engine also ran batches of other kinds than the measured ones."""
    others = run.steps.filter(~pl.col("kind").is_in(run.chosen_steps["kind"].implode()))
    kinds = others.group_by("kind", maintain_order=True).agg(pl.col("step").n_unique()).iter_rows()
    if others.height:
        batches = [
            (told.BATCH_OF_A_KIND if count == 1 else told.BATCHES_OF_A_KIND)(count=count, kind=kind)
            for kind, count in kinds
        ]
        yield told.OTHER_BATCHES(batches=batches, step=others["step"][0])


def _warn_of_several_gpus(run: MeasuredRun) -> Iterator[Message]:
    """Warn if figures for the GPU are figures for several GPUs of one process."""
    gpus = count_gpus_per_rank(run.kernels)
    if gpus > 1:
        yield told.SEVERAL_GPUS_IN_PROCESS(gpus=gpus)


def _warn_of_missing_launches(run: MeasuredRun) -> Iterator[Message]:
    """Warn about kernels without a recorded launch call."""
    part = compute_time_share(run.kernels, "dur_ns", pl.col("call").is_null())
    if part > MIN_UNLAUNCHED_PCT:
        missing = told.LAUNCHES_MISSING if is_whole_trace(run.steps) else told.LAUNCHES_MISSING_IN_STEPS
        yield missing(time_pct=part)


def _warn_of_lost_kernels(run: MeasuredRun) -> Iterator[Message]:
    """Warn about launches without a kernel."""
    missing, launches = np.sum([count_lost_launches(rank) for rank in run.ranks], axis=0)
    if missing > MIN_LOST_FRACTION * launches:
        said = told.GRAPHS_NOT_TRACED if all(lacks_graphs(rank) for rank in run.ranks) else told.KERNELS_LOST
        yield said(lost=int(missing), launches=int(launches))


def _warn_of_whole_graphs(run: MeasuredRun) -> Iterator[Message]:
    """Warn about CUDA graphs that were recorded without their kernels."""
    graphs = run.kernels.filter(is_whole_graph()).height
    if graphs:
        part = compute_time_share(run.kernels, "dur_ns", is_whole_graph())
        yield told.GRAPHS_WHOLE(launches=graphs, time_pct=part)


def _warn_of_incomplete_replays(run: MeasuredRun) -> Iterator[Message]:
    """Warn about replays of CUDA graphs that lack kernels which others of the same graph have."""
    counts = [count_replayed_nodes(rank) for rank in run.ranks]
    missing = sum(of_rank.missing for of_rank in counts)
    if missing:
        yield told.GRAPH_REPLAYS_INCOMPLETE(
            incomplete=sum(of_rank.incomplete for of_rank in counts),
            replays=sum(of_rank.replays for of_rank in counts),
            missing=missing,
        )


def _warn_of_model_config(run: MeasuredRun) -> Iterator[Message]:
    """Warn if the model's configuration was given, and explains nothing that isn't known without it."""
    model = run.trace.model
    told = run.kernels["work_from"]
    if model is not None and told.null_count() and not (told == "model").any():
        yield CONFIG_WITHOUT_FIT(path=model.name, difference=describe_misfit(run.kernels, run.trace))


def _warn_of_contradicted_names(run: MeasuredRun) -> Iterator[Message]:
    """Warn about kernels that are named after their op, as their own name contradicts it."""
    replaced = run.kernels.filter(pl.col("name").str.contains(REPLACED_NAME))
    if replaced.height:
        yield told.KERNEL_NAMES_CONTRADICTED(kernels=replaced.height, op=replaced["op"][0])


def _warn_of_unknown_masks(run: MeasuredRun) -> Iterator[Message]:
    """Warn if attention masks are unknown because values of op inputs weren't recorded."""
    if not run.trace.has_shapes or run.trace.ops["concrete_inputs"].count():
        return
    part = compute_time_share(run.kernels, "dur_ns", (pl.col("family") == "attention") & ~pl.col("causal"))
    if part > MIN_UNMASKED_PCT:
        yield told.ATTENTION_MASK_UNKNOWN(time_pct=part)


def _warn_of_profiler_overhead(run: MeasuredRun) -> Iterator[Message]:
    """Warn about the profiler's overhead, if the step was also timed without the profiler."""
    without_us = run.trace.unprofiled_step_us
    if without_us and run.measured_step.step_time_us > MIN_OVERHEAD_RATIO * without_us:
        yield told.PROFILER_SLOWS_STEP(without_us=without_us, with_us=run.measured_step.step_time_us)


def _warn_of_profiler_stalls(run: MeasuredRun) -> Iterator[Message]:
    """Warn about the profiler's recorded delays of the host in the measured steps, as the mean over ranks."""
    held = pl.concat(table.select("name", "dur_ns") for table in find_stalls_of_steps(run.program))
    held_us = int(held["dur_ns"].sum()) / 1e3 / len(run.ranks)
    if held_us > MIN_STALL_FRACTION * run.measured_step.span_us:
        yield told.PROFILER_HOLDS_CPU(held_us=held_us, kinds=held["name"].unique().sort().to_list())


def _iter_rank_warnings(run: MeasuredRun) -> Iterator[Message]:
    """Yield the ranks' own warnings; merge those that differ only in numbers, and name the rank if not all have it."""
    alike: dict[object, list[tuple[int, Message]]] = {}
    for rank in run.ranks:
        for warning in (*rank.warnings, *secret_scan.build_secret_warnings(rank)):
            if warning.template is DEVICE_NOT_RECORDED and run.source:
                continue
            alike.setdefault(_mask_numbers(warning), []).append((rank.rank or 0, warning))
    for found in alike.values():
        (number, first), *others = found
        said = told.WARNING_REPEATED(warning=first, more=len(others)) if others else first
        yield told.RANK_WARNED(rank=number, warning=said) if len(dict(found)) < len(run.ranks) else said


def _mask_numbers(message: Message) -> str:
    """Return the text of a message without its numbers."""
    return re.sub(r"\d+", "", message.render())


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
