"""Remove the profiler's overhead from a run, given the step time without the profiler."""

from dataclasses import replace

from tracekit.errors import TracekitError
from tracekit.format import format_duration
from tracekit.replay.engine import compute_lags
from tracekit.replay.step_scale import StepScale
from tracekit.run import MeasuredRun

BISECTION_STEPS = 30


def remove_profiler_overhead(run: MeasuredRun, step_time_us: float) -> MeasuredRun:
    """Scale the host's own work so that the replayed step takes as long as without the profiler.

    The profiler slows every op and every call on the CPU. Kernels are timed by the GPU and keep their times.

    Args:
        run: The run.
        step_time_us: Step time without the profiler, measured by the user.

    Returns:
        The run with ``step_time_us`` as its measured step.

    Raises:
        TracekitError: The profiled step is shorter, or the GPU's work alone takes longer.
    """
    times = run.kernel_us
    if not step_time_us <= run.replay_step(times).step_time_us:
        raise TracekitError(
            f"A step of {format_duration(step_time_us)} without the profiler is longer than the recorded one, "
            f"{format_duration(run.measured_step.step_time_us)}.",
            "Give the time of the same step.",
        )
    floor_us = run.replay_step(times, 0.0).step_time_us
    if step_time_us < floor_us:
        raise TracekitError(
            f"A step of {format_duration(step_time_us)} without the profiler is shorter than what "
            "the recorded step takes "
            f"with no work of the CPU at all, {format_duration(floor_us)}.",
            "Give the time of the same step.",
        )
    low, high = 0.0, 1.0
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        longer = run.replay_step(times, middle).step_time_us > step_time_us
        low, high = (low, middle) if longer else (middle, high)
    graph = replace(run.graph, lag_ns=compute_lags(run.graph, host_time=high))
    left = replace(run, graph=graph)
    line = left.replay_timeline(times)
    replayed, on_scale = left.step_timer.compute_median(line), left.compute_median(line)
    raw_ns = left.step_timer.measure_job_steps_ns(line)
    still_ns = run.self_replay.step_scale.apply(raw_ns) * (step_time_us / on_scale.step_time_us)
    told = (
        f"a step of {format_duration(step_time_us)} without the profiler, instead of "
        f"{format_duration(run.measured_step.step_time_us)} "
        f"as recorded, leaves {100 * high:.0f} % of the CPU's own work; the rest is taken for the profiler's"
    )
    return replace(
        left,
        measured_step=replace(run.measured_step, step_time_us=step_time_us),
        self_replay=replace(
            run.self_replay,
            step_time_us=replayed.step_time_us,
            span_us=replayed.span_us,
            step_scale=StepScale(still_ns, raw_ns),
        ),
        assumptions=(*run.assumptions, told),
    )
