"""What a reader of any figure has to know first."""

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from tracekit import secrets
from tracekit.ingest.build import UNDESCRIBED
from tracekit.ingest.ranks import ranges
from tracekit.prediction.pace import pace
from tracekit.replay.causes import Cause
from tracekit.replay.idle import END_OF_STEP, Idle
from tracekit.replay.lost import without_kernel
from tracekit.replay.profiler import held_up
from tracekit.replay.run import TRUSTED_ERROR_PCT, Run
from tracekit.reporting.sections import unlike
from tracekit.units import duration, kernel_title, many
from tracekit.workload.shares import share
from tracekit.workload.steps import is_whole_trace, iterations

# Percent of the GPU's time without recorded launches, from which on the reader should know.
MUCH_UNLAUNCHED = 50.0

# Launches without a kernel, from which on the reader should know: public traces have fewer.
MUCH_LOST = 0.02

# What the profiler adds to a step, from which on the reader should know.
MUCH_OVERHEAD = 1.03

# Part of the recording that the profiler's own work held the CPU up, from which on the reader should know.
MUCH_HELD = 0.005

# Percent of the GPU's time of attention with an unknown mask, from which on the reader should know.
MUCH_UNMASKED = 5.0

# Time within CUDA graphs that is kept rather than derived, from which on the reader should know.
MUCH_HIDDEN = 0.05

# Time that the GPU stood still for no reason that was recorded, from which on the reader should know.
MUCH_STALLED = 0.01

# Idle time for which there is no reason at all, from which on the reader should know.
MUCH_UNEXPLAINED = 0.1


def build(run: Run, idle: Idle) -> tuple[str, ...]:
    """The warnings, one sentence each.

    Args:
        run: The measured run.
        idle: Why its GPU was idle.
    """
    return tuple(_warnings(run, idle))


def _warnings(run: Run, idle: Idle) -> Iterator[str]:
    yield from run.job_warnings
    yield from _of_each_rank(run)
    yield from run.assumptions
    yield from _unmarked(run)
    yield from _batches(run)
    if found := unlike.build(run, idle):
        yield unlike.sentence(found)
    yield from _gpus(run)
    yield from _unlaunched(run)
    yield from _lost(run)
    yield from _unmasked(run)
    if run.doubt:
        yield run.doubt
    yield from _pace(run)
    if abs(run.replay.error_pct) > TRUSTED_ERROR_PCT:
        yield (
            f"the replay misses the measured step by {run.replay.error_pct:+.1f} %: the trace holds waits that no "
            "recorded or inferred dependency explains; its predictions are less sure than their intervals say"
        )
    yield from _ranks(run)
    yield from _overhead(run)
    yield from _held_up(run)
    hidden = run.graph.hidden_ns / 1e3 / run.measured.step_time_us / run.steps.height
    if hidden > MUCH_HIDDEN:
        yield (
            f"{100 * hidden:.0f} % of the step lies between the kernels of CUDA graphs and is kept as it was: on a "
            "faster GPU the step may be shorter than predicted"
        )
    stalled = run.graph.stalled_ns / 1e3 / run.measured.step_time_us / run.steps.height
    if stalled > MUCH_STALLED:
        yield (
            f"{100 * stalled:.0f} % of the step the GPU stood still with work launched and nothing recorded to wait "
            "for (a kernel's first launch does that): kept as it was"
        )
    yield from _unexplained(run, idle, stalled)
    if run.graph.dropped:
        yield f"{run.graph.dropped} inferred dependencies contradict others and were left out"


def _unexplained(run: Run, idle: Idle, stalled: float) -> Iterator[str]:
    """That much of the step is idle time for which neither a launch nor a wait is there."""
    causes = idle.by_cause()
    idle_us = float(causes.filter(pl.col("cause") == Cause.UNEXPLAINED)["time_us"].sum())
    part = idle_us * 1e3 * idle.steps.height / max(int(idle.steps["time_ns"].sum()), 1)
    if part - stalled <= MUCH_UNEXPLAINED:
        return
    op = idle.by_op(run.kernels, Cause.UNEXPLAINED)["op"][0]
    where = "at the end of the step" if op == END_OF_STEP else f"mostly before {kernel_title(op)}"
    cut = "leave the steps that have it out with --steps, or " if run.steps.height > 1 else ""
    yield (
        f"{100 * part:.0f} % of the step ({duration(idle_us)}) the GPU was idle and nothing in the trace says why "
        f"({where}): that is kept as measured on every GPU, so a speedup is smaller than that of the work; {cut}record "
        "steps after a warm-up (schedule(warmup=...), profiler.step())"
    )


def _pace(run: Run) -> Iterator[str]:
    """That the GPU was slower than its kind is."""
    found = pace(run.kernels, run.gpu) if run.gpu else None
    if found and found.is_slow:
        yield (
            f"kernels of all families took longer than they usually do on this GPU, {found}: its clock was low, or "
            "others used it; predictions carry that to other GPUs"
        )


def _unmarked(run: Run) -> Iterator[str]:
    """That what is called a step is several, where the optimizer tells."""
    several = iterations(run.trace) if is_whole_trace(run.steps) else None
    if several:
        yield (
            f"no steps are marked, so the whole trace counts as one, though {several}: all times are of them together "
            "(profiler.step() marks steps)"
        )


def _batches(run: Run) -> Iterator[str]:
    """That batches of other kinds than the measured ones were run."""
    others = run.steps.filter(~pl.col("kind").is_in(run.chosen["kind"].implode()))
    kinds = others.group_by("kind", maintain_order=True).agg(pl.col("step").n_unique()).iter_rows()
    if others.height:
        left_out = " and ".join(many(count, f"{kind} batch") for kind, count in kinds)
        yield f"the engine also ran {left_out}, which aren't measured: --steps {others['step'][0]} measures the first"


def _gpus(run: Run) -> Iterator[str]:
    """That what is said of the GPU is said of several."""
    devices = pl.col("device").drop_nulls().n_unique()
    gpus = run.kernels.select(devices.over("rank") if "rank" in run.kernels.columns else devices).max().item()
    if gpus > 1:
        yield f"a process drove {gpus} GPUs: busy and idle are of them together, and predictions are for as many"


def _unlaunched(run: Run) -> Iterator[str]:
    """That kernels are there of which no call is known to have launched them."""
    part = share(run.kernels, "dur_ns", pl.col("call").is_null())
    if part > MUCH_UNLAUNCHED:
        left_out = "" if is_whole_trace(run.steps) else ", and they count to no step"
        yield (
            f"{part:.0f} % of the GPU's time is of kernels whose launch wasn't recorded: what they wait for stays as "
            f"measured{left_out} (record ProfilerActivity.CPU and warm-up steps)"
        )


def _lost(run: Run) -> Iterator[str]:
    """That launches are there of which no kernel is."""
    missing, launches = np.sum([without_kernel(rank) for rank in run.ranks], axis=0)
    if missing > MUCH_LOST * launches:
        yield (
            f"{missing:,} of {launches:,} launches have no kernel in the trace: what they ran counts as idle time on "
            "every GPU (record fewer steps at once: full buffers lose kernels)"
        )


def _unmasked(run: Run) -> Iterator[str]:
    """That attention's masks weren't recorded, as no values of inputs were."""
    if not run.trace.shapes_recorded or run.trace.ops["concrete_inputs"].count():
        return
    part = share(run.kernels, "dur_ns", (pl.col("family") == "attention") & ~pl.col("causal"))
    if part > MUCH_UNMASKED:
        yield (
            f"{part:.0f} % of the GPU's time is of attention whose mask isn't in the trace, as values of ops' inputs "
            "weren't recorded (newer PyTorch does): it counts as unmasked; if it is causal, it does half the work"
        )


def _overhead(run: Run) -> Iterator[str]:
    """What the profiler cost, where the step was timed without it too."""
    without_us = run.trace.unprofiled_step_us
    if without_us and run.measured.step_time_us > MUCH_OVERHEAD * without_us:
        yield (
            f"a step took {duration(without_us)} without the profiler and {duration(run.measured.step_time_us)} with "
            f"it: --unprofiled-step {without_us / 1e3:.6g}ms takes that out"
        )


def _held_up(run: Run) -> Iterator[str]:
    """What the profiler was recorded to hold up the CPU for, of several ranks in the mean."""
    held = pl.concat([held_up(rank).select("name", "dur_ns") for rank in run.ranks])
    held_us = int(held["dur_ns"].sum()) / 1e3 / len(run.ranks)
    if held_us > MUCH_HELD * run.measured.span_us:
        kinds = ", ".join(held["name"].unique().sort())
        yield (
            f"the profiler itself held up the CPU for {duration(held_us)} of the recording ({kinds}): "
            "--what-if 'no-profiler()' takes that out"
        )


def _of_each_rank(run: Run) -> Iterator[str]:
    """What is said of the ranks' recordings; what differs only in numbers is said of one, by its rank if not of all."""
    alike: dict[str, list[tuple[int, str]]] = {}
    for rank in run.ranks:
        for warning in (*rank.warnings, *secrets.warnings(rank)):
            if warning == UNDESCRIBED and run.source:
                continue
            alike.setdefault(re.sub(r"\d+", "", warning), []).append((rank.rank or 0, warning))
    for told in alike.values():
        (number, first), *others = told
        whose = f"rank {number}: " if len(dict(told)) < len(run.ranks) else ""
        yield f"{whose}{first} (and {len(others)} more like it)" if others else f"{whose}{first}"


def _ranks(run: Run) -> Iterator[str]:
    """What is guessed for want of ranks, or of agreement between them."""
    world, read = run.trace.world_size, len(run.ranks)
    kept_wait = duration(run.replay.kept_wait_us)
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
    for doubt in run.collectives.doubts:
        yield f"{doubt}: they are not joined, and their waiting is kept as measured"
    alone = sorted({rank.rank or 0 for rank in run.ranks} - set(run.collectives.ahead_ns))
    if run.collectives.table.is_empty():
        yield "no collective joins the ranks: they are replayed side by side, on their clocks as recorded"
    elif alone:
        ones = "ranks" if len(alone) > 1 else "rank"
        yield f"no collective in which all wait for all tells the clock of {ones} {ranges(alone)}: taken as recorded"
