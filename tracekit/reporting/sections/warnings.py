"""Warnings that apply to all figures of the report."""

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from tracekit import secret_scan
from tracekit.analysis.clock_speed import measure_clock_speed
from tracekit.analysis.idle import END_OF_STEP, IdleBreakdown
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.lost_kernels import count_lost_launches
from tracekit.analysis.profiler_overhead import find_profiler_stalls
from tracekit.format import format_duration, format_quantity, shorten_kernel_name
from tracekit.ingest.build import NO_DEVICE_WARNING
from tracekit.ingest.ranks import abbreviate_ranks
from tracekit.reporting.sections import unlike_steps
from tracekit.run import MAX_TRUSTED_ERROR_PCT, MeasuredRun
from tracekit.workload.steps import describe_iterations, is_whole_trace
from tracekit.workload.time_share import compute_time_share

# Percent of the GPU's time without recorded launches, from which on the report warns.
MIN_UNLAUNCHED_PCT = 50.0

# Fraction of launches without a kernel, from which on the report warns; public traces have fewer.
MIN_LOST_FRACTION = 0.02

# Step time with the profiler over step time without it, from which on the report warns.
MIN_OVERHEAD_RATIO = 1.03

# Fraction of the recording in which the profiler's own work delayed the host, from which on the report warns.
MIN_STALL_FRACTION = 0.005

# Percent of the GPU's time in attention with an unknown mask, from which on the report warns.
MIN_UNMASKED_PCT = 5.0

# Fraction of the step in gaps within CUDA graphs that stay as measured, from which on the report warns.
MIN_HIDDEN_FRACTION = 0.05

# Fraction of the step in which the GPU stalled for no recorded reason, from which on the report warns.
MIN_STALLED_FRACTION = 0.01

# Fraction of the step in idle time without any known cause, from which on the report warns.
MIN_UNEXPLAINED_FRACTION = 0.1


def build_warnings(run: MeasuredRun, idle: IdleBreakdown) -> tuple[str, ...]:
    """Build the warnings, one sentence each.

    Args:
        run: The measured run.
        idle: Causes of its GPU's idle time.
    """
    return tuple(_iter_warnings(run, idle))


def _iter_warnings(run: MeasuredRun, idle: IdleBreakdown) -> Iterator[str]:
    yield from run.job_warnings
    yield from _iter_rank_warnings(run)
    yield from map(str, run.time_faults)
    yield from run.assumptions
    yield from _warn_of_unmarked_steps(run)
    yield from _warn_of_other_batches(run)
    if found := unlike_steps.find_unlike_steps(run, idle):
        yield unlike_steps.write_warning(found)
    yield from _warn_of_several_gpus(run)
    yield from _warn_of_missing_launches(run)
    yield from _warn_of_lost_kernels(run)
    yield from _warn_of_unknown_masks(run)
    if run.source_doubt:
        yield run.source_doubt
    yield from _warn_of_low_clock(run)
    if abs(run.self_replay.error_pct) > MAX_TRUSTED_ERROR_PCT:
        yield (
            f"the replay misses the measured step by {run.self_replay.error_pct:+.1f} %: the trace holds waits that no "
            "recorded or inferred dependency explains; its predictions are less sure than their intervals say"
        )
    yield from _warn_of_missing_ranks(run)
    yield from _warn_of_profiler_overhead(run)
    yield from _warn_of_profiler_stalls(run)
    hidden = run.graph.hidden_ns / 1e3 / run.measured_step.step_time_us / run.steps.height
    if hidden > MIN_HIDDEN_FRACTION:
        yield (
            f"{100 * hidden:.0f} % of the step lies between the kernels of CUDA graphs and is kept as it was: on a "
            "faster GPU the step may be shorter than predicted"
        )
    stalled = run.graph.stalled_ns / 1e3 / run.measured_step.step_time_us / run.steps.height
    if stalled > MIN_STALLED_FRACTION:
        yield (
            f"{100 * stalled:.0f} % of the step the GPU stood still with work launched and nothing recorded to wait "
            "for (a kernel's first launch does that): kept as it was"
        )
    yield from _warn_of_unexplained_idle(run, idle, stalled)
    if run.graph.dropped:
        yield f"{run.graph.dropped} inferred dependencies contradict others and were left out"


def _warn_of_unexplained_idle(run: MeasuredRun, idle: IdleBreakdown, stalled: float) -> Iterator[str]:
    """Warn if much of the step is idle time that neither a launch nor a wait explains."""
    causes = idle.sum_by_cause()
    idle_us = float(causes.filter(pl.col("cause") == IdleCause.UNEXPLAINED)["time_us"].sum())
    part = idle_us * 1e3 * idle.steps.height / max(int(idle.steps["time_ns"].sum()), 1)
    if part - stalled <= MIN_UNEXPLAINED_FRACTION:
        return
    op = idle.sum_by_op(run.kernels, IdleCause.UNEXPLAINED)["op"][0]
    where = "at the end of the step" if op == END_OF_STEP else f"mostly before {shorten_kernel_name(op)}"
    cut = "leave the steps that have it out with --steps, or " if run.steps.height > 1 else ""
    yield (
        f"{100 * part:.0f} % of the step ({format_duration(idle_us)}) the GPU was idle and "
        "nothing in the trace says why "
        f"({where}): that is kept as measured on every GPU, so a speedup is smaller than that of the work; {cut}record "
        "steps after a warm-up (schedule(warmup=...), profiler.step())"
    )


def _warn_of_low_clock(run: MeasuredRun) -> Iterator[str]:
    """Warn if the GPU was slower than GPUs of its model usually are."""
    found = measure_clock_speed(run.kernels, run.gpu) if run.gpu else None
    if found and found.is_slow:
        yield (
            f"kernels of all families took longer than they usually do on this GPU, {found}: its clock was low, or "
            "others used it; predictions carry that to other GPUs"
        )


def _warn_of_unmarked_steps(run: MeasuredRun) -> Iterator[str]:
    """Warn if an unmarked trace, which counts as one step, holds several optimizer steps."""
    several = describe_iterations(run.trace) if is_whole_trace(run.steps) else None
    if several:
        yield (
            f"no steps are marked, so the whole trace counts as one, though {several}: all times are of them together "
            "(profiler.step() marks steps)"
        )


def _warn_of_other_batches(run: MeasuredRun) -> Iterator[str]:
    """Warn if the engine also ran batches of other kinds than the measured ones."""
    others = run.steps.filter(~pl.col("kind").is_in(run.chosen_steps["kind"].implode()))
    kinds = others.group_by("kind", maintain_order=True).agg(pl.col("step").n_unique()).iter_rows()
    if others.height:
        left_out = " and ".join(format_quantity(count, f"{kind} batch") for kind, count in kinds)
        yield f"the engine also ran {left_out}, which aren't measured: --steps {others['step'][0]} measures the first"


def _warn_of_several_gpus(run: MeasuredRun) -> Iterator[str]:
    """Warn if figures for the GPU are figures for several GPUs of one process."""
    devices = pl.col("device").drop_nulls().n_unique()
    gpus = run.kernels.select(devices.over("rank") if "rank" in run.kernels.columns else devices).max().item()
    if gpus > 1:
        yield f"a process drove {gpus} GPUs: busy and idle are of them together, and predictions are for as many"


def _warn_of_missing_launches(run: MeasuredRun) -> Iterator[str]:
    """Warn about kernels without a recorded launch call."""
    part = compute_time_share(run.kernels, "dur_ns", pl.col("call").is_null())
    if part > MIN_UNLAUNCHED_PCT:
        left_out = "" if is_whole_trace(run.steps) else ", and they count to no step"
        yield (
            f"{part:.0f} % of the GPU's time is of kernels whose launch wasn't recorded: what they wait for stays as "
            f"measured{left_out} (record ProfilerActivity.CPU and warm-up steps)"
        )


def _warn_of_lost_kernels(run: MeasuredRun) -> Iterator[str]:
    """Warn about launches without a kernel."""
    missing, launches = np.sum([count_lost_launches(rank) for rank in run.ranks], axis=0)
    if missing > MIN_LOST_FRACTION * launches:
        yield (
            f"{missing:,} of {launches:,} launches have no kernel in the trace: what they ran counts as idle time on "
            "every GPU (record fewer steps at once: full buffers lose kernels)"
        )


def _warn_of_unknown_masks(run: MeasuredRun) -> Iterator[str]:
    """Warn if attention masks are unknown because values of op inputs weren't recorded."""
    if not run.trace.has_shapes or run.trace.ops["concrete_inputs"].count():
        return
    part = compute_time_share(run.kernels, "dur_ns", (pl.col("family") == "attention") & ~pl.col("causal"))
    if part > MIN_UNMASKED_PCT:
        yield (
            f"{part:.0f} % of the GPU's time is of attention whose mask isn't in the trace, as values of ops' inputs "
            "weren't recorded (newer PyTorch does): it counts as unmasked; if it is causal, it does half the work"
        )


def _warn_of_profiler_overhead(run: MeasuredRun) -> Iterator[str]:
    """Warn about the profiler's overhead, if the step was also timed without the profiler."""
    without_us = run.trace.unprofiled_step_us
    if without_us and run.measured_step.step_time_us > MIN_OVERHEAD_RATIO * without_us:
        yield (
            f"a step took {format_duration(without_us)} without the profiler and "
            f"{format_duration(run.measured_step.step_time_us)} with "
            f"it: --unprofiled-step {without_us / 1e3:.6g}ms takes that out"
        )


def _warn_of_profiler_stalls(run: MeasuredRun) -> Iterator[str]:
    """Warn about the profiler's recorded delays of the host, as the mean over ranks."""
    held = pl.concat([find_profiler_stalls(rank).select("name", "dur_ns") for rank in run.ranks])
    held_us = int(held["dur_ns"].sum()) / 1e3 / len(run.ranks)
    if held_us > MIN_STALL_FRACTION * run.measured_step.span_us:
        kinds = ", ".join(held["name"].unique().sort())
        yield (
            f"the profiler itself held up the CPU for {format_duration(held_us)} of the recording ({kinds}): "
            "--what-if 'no-profiler()' takes that out"
        )


def _iter_rank_warnings(run: MeasuredRun) -> Iterator[str]:
    """Yield the ranks' own warnings; merge those that differ only in numbers, and name the rank if not all have it."""
    alike: dict[str, list[tuple[int, str]]] = {}
    for rank in run.ranks:
        for warning in (*rank.warnings, *secret_scan.build_secret_warnings(rank)):
            if warning == NO_DEVICE_WARNING and run.source:
                continue
            alike.setdefault(re.sub(r"\d+", "", warning), []).append((rank.rank or 0, warning))
    for told in alike.values():
        (number, first), *others = told
        whose = f"rank {number}: " if len(dict(told)) < len(run.ranks) else ""
        yield f"{whose}{first} (and {len(others)} more like it)" if others else f"{whose}{first}"


def _warn_of_missing_ranks(run: MeasuredRun) -> Iterator[str]:
    """Warn about assumptions due to missing ranks or to ranks that contradict one another."""
    world, read = run.trace.world_size, len(run.ranks)
    kept_wait = format_duration(run.self_replay.kept_wait_us)
    kept = (
        "what collectives take beyond the shortest of their kind is kept as waiting for other ranks: "
        f"{kept_wait} a step, that while other kernels ran included"
    )
    if read == 1 < world:
        yield f"one of {world} ranks: {kept} (give all ranks' traces to derive it)"
    elif read < world:
        yield f"{read} of {world} ranks: the others are assumed to arrive when a like rank does, and {kept}"
    if run.collectives is None:
        return
    for doubt in run.collectives.mismatches:
        yield f"{doubt}: they are not joined, and their waiting is kept as measured"
    alone = sorted({rank.rank or 0 for rank in run.ranks} - set(run.collectives.clock_offset_ns))
    if run.collectives.table.is_empty():
        yield "no collective joins the ranks: they are replayed side by side, on their clocks as recorded"
    elif alone:
        ones = "ranks" if len(alone) > 1 else "rank"
        yield (
            f"no collective in which all wait for all tells the clock of {ones} "
            f"{abbreviate_ranks(alone)}: taken as recorded"
        )
