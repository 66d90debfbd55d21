"""The profiler's overhead taken out of a run, from what a step takes without the profiler."""

from dataclasses import replace

from tracekit.errors import TracekitError
from tracekit.replay.engine import lags
from tracekit.replay.measure import Scale
from tracekit.replay.run import Run
from tracekit.units import duration

HALVINGS = 30


def unprofiled(run: Run, step_time_us: float) -> Run:
    """The run with the CPU's own work cut evenly so that the step takes what it does without the profiler.

    The profiler notes every op and every call, on the CPU; kernels are timed by the GPU and keep their time.

    Args:
        run: The run.
        step_time_us: The step without the profiler, measured by the user.

    Returns:
        The run with that step as its measured one.

    Raises:
        TracekitError: The profiled step is shorter, or the GPU's work alone takes longer.
    """
    times = run.kernel_us
    if not step_time_us <= run.step_with(times).step_time_us:
        raise TracekitError(
            f"A step of {duration(step_time_us)} without the profiler is longer than the recorded one, "
            f"{duration(run.measured.step_time_us)}.",
            "Give the time of the same step.",
        )
    floor_us = run.step_with(times, 0.0).step_time_us
    if step_time_us < floor_us:
        raise TracekitError(
            f"A step of {duration(step_time_us)} without the profiler is shorter than what the recorded step takes "
            f"with no work of the CPU at all, {duration(floor_us)}.",
            "Give the time of the same step.",
        )
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        longer = run.step_with(times, middle).step_time_us > step_time_us
        low, high = (low, middle) if longer else (middle, high)
    graph = replace(run.graph, lag_ns=lags(run.graph, host_time=high))
    left = replace(run, graph=graph)
    line = left.timeline_with(times)
    replayed, on_scale = left.meter.median(line), left.median(line)
    raw_ns = left.meter.scale(line, line).replayed_ns
    still_ns = run.replay.scale.put(raw_ns) * (step_time_us / on_scale.step_time_us)
    told = (
        f"a step of {duration(step_time_us)} without the profiler, instead of {duration(run.measured.step_time_us)} "
        f"as recorded, leaves {100 * high:.0f} % of the CPU's own work; the rest is taken for the profiler's"
    )
    return replace(
        left,
        measured=replace(run.measured, step_time_us=step_time_us),
        replay=replace(
            run.replay,
            step_time_us=replayed.step_time_us,
            span_us=replayed.span_us,
            scale=Scale(still_ns, raw_ns),
        ),
        assumptions=(*run.assumptions, told),
    )
