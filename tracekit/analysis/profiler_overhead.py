"""Find the profiler's overhead where CUPTI records it, and remove it from a run given the step time without it.

Kineto writes the profiler's own work (overhead events) without its thread. It delayed a thread if it lies within an op
or call of that thread and nothing of the thread begins or ends meanwhile. Buffers, for example, are flushed on CUPTI's
own thread, where the program isn't delayed. Loading a kernel (``Lazy Function Loading``) is CUDA's work, with or
without the profiler.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools, select_any
from tracekit.errors import TracekitError
from tracekit.kept import keep_on_first
from tracekit.messages import requests as messages
from tracekit.program import Program
from tracekit.replay.engine import compute_lags
from tracekit.replay.step_time import StepScale
from tracekit.run import MeasuredRun, RunResults
from tracekit.trace import RankTrace
from tracekit.workload.steps import assign_steps

PROFILER_OVERHEAD_KINDS = ("Buffer Flush", "Instrumentation", "Resource", "Activity Buffer Request")
"""Kinds of overhead that CUPTI causes only while recording (libkineto's ``overheadKindString``)."""

BISECTION_STEPS = 30


def remove_profiler_overhead(run: MeasuredRun, step_time_us: float) -> MeasuredRun:
    """Scale the host's own work of a run so that the replayed step takes as long as without the profiler.

    ``step_time_us``, measured by the user without the profiler, is the measured step of the run that is returned.

    Raises:
        TracekitError: As :func:`scale_host_time`.
    """
    recorded_us = run.measured_step.step_time_us
    left, host = scale_host_time(run.program, step_time_us, recorded_us)
    replayed = left.step_timer.compute_median(left.replay_timeline(left.kernel_us))
    removed = messages.PROFILER_OVERHEAD_REMOVED(
        step_time_us=step_time_us, recorded_us=recorded_us, host_pct=100 * host
    )
    return replace(
        run,
        program=left,
        results=RunResults(
            measured_step=replace(run.measured_step, step_time_us=step_time_us),
            self_replay=replace(run.self_replay, step_time_us=replayed.step_time_us, span_us=replayed.span_us),
        ),
        provenance=replace(run.provenance, assumptions=(*run.provenance.assumptions, removed)),
    )


def scale_host_time(program: Program, step_time_us: float, recorded_us: float) -> tuple[Program, float]:
    """Scale the host's own work so that the replayed step takes as long as without the profiler.

    The profiler slows every op and every call on the CPU. Kernels are timed by the GPU and keep their times.

    The step takes ``step_time_us`` without the profiler, and ``recorded_us`` with it.

    Returns:
        The program, whose replays are on the scale of that step, and the fraction of the host's work that it keeps.

    Raises:
        TracekitError: The profiled step is shorter, or the GPU's work alone takes longer.
    """
    times = program.kernel_us
    if not step_time_us <= program.replay_step(times).step_time_us:
        raise TracekitError(messages.UNPROFILED_STEP_TOO_LONG(step_time_us=step_time_us, recorded_us=recorded_us))
    floor_us = program.replay_step(times, 0.0).step_time_us
    if step_time_us < floor_us:
        raise TracekitError(messages.UNPROFILED_STEP_TOO_SHORT(step_time_us=step_time_us, least_us=floor_us))
    low, high = 0.0, 1.0
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        longer = program.replay_step(times, middle).step_time_us > step_time_us
        low, high = (low, middle) if longer else (middle, high)
    left = replace(program, graph=replace(program.graph, lag_ns=compute_lags(program.graph, host_time=high)))
    line = left.replay_timeline(times)
    raw_ns = left.step_timer.measure_job_steps_ns(line)
    still_ns = program.step_scale.apply(raw_ns) * (step_time_us / left.compute_median(line).step_time_us)
    return replace(left, step_scale=StepScale(still_ns, raw_ns)), high


@keep_on_first
def find_stalls_of_steps(program: Program) -> list[pl.DataFrame]:
    """Find, for each rank, the profiler's work that delayed a launching thread in the chosen steps.

    Returns:
        As :func:`find_profiler_stalls`.
    """
    return [_select_in_steps(find_profiler_stalls(rank), rank, program) for rank in program.ranks]


def _select_in_steps(stalls: pl.DataFrame, rank: RankTrace, program: Program) -> pl.DataFrame:
    if stalls.is_empty():
        return stalls
    number = rank.rank or 0
    launching = rank.calls.select("pid", "tid")[
        program.kernels.filter(rank=number)["call"].drop_nulls().unique().to_list()
    ]
    within = assign_steps(stalls["ts_ns"], program.chosen_steps.filter(rank=number)).is_not_null()
    return stalls.filter(within).join(launching.unique(), on=["pid", "tid"], how="semi", nulls_equal=True)


def find_profiler_stalls(rank: RankTrace) -> pl.DataFrame:
    """Find the profiler's work that delayed exactly one thread: ``ts_ns``, ``dur_ns``, ``name``, ``pid``, ``tid``."""
    own = rank.overheads[["ts_ns", "dur_ns", "name"]][select_any(rank.overheads["name"], PROFILER_OVERHEAD_KINDS)]
    if own.is_empty():
        return own.hstack(rank.calls[["pid", "tid"]].head(0))
    threads = rank.calls.select("pid", "tid").unique().sort("pid", "tid")
    if threads.is_empty():
        return own.head(0).join(threads, how="cross")
    events = pl.concat([table.select("ts_ns", "dur_ns", "pid", "tid") for table in (rank.ops, rank.calls)])
    held = np.stack(
        [
            _is_within_thread_event(own, events.join(threads[row], on=["pid", "tid"], nulls_equal=True))
            for row in range(threads.height)
        ]
    )
    one = held.sum(axis=0) == 1
    return own.filter(pl.Series(one)).hstack(threads[np.argmax(held, axis=0)[one].tolist()])


def _is_within_thread_event(own: pl.DataFrame, events: pl.DataFrame) -> Bools:
    """Mark the work that lies within an event of a thread and in which no event of the thread begins or ends."""
    ordered = events.sort("ts_ns")
    begin = ordered["ts_ns"].to_numpy()
    end = begin + ordered["dur_ns"].to_numpy()
    since, until = own["ts_ns"].to_numpy(), (own["ts_ns"] + own["dur_ns"]).to_numpy()
    before = np.searchsorted(begin, since, side="right")
    covered = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)])[before] >= until
    by_end = np.sort(end)
    begins = np.searchsorted(begin, until) > before
    ends = np.searchsorted(by_end, until) > np.searchsorted(by_end, since, side="right")
    held: Bools = covered & ~begins & ~ends
    return held
