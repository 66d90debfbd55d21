"""The profiler's own cost in predicted steps that the CPU limits."""

from collections.abc import Callable, Iterator
from functools import cached_property

from tracekit.analysis.profiler_overhead import find_stalls_of_steps, scale_host_time
from tracekit.arrays import Floats
from tracekit.errors import TracekitError
from tracekit.messages import Message
from tracekit.messages import predictions as told
from tracekit.messages.requests import PROFILER_OVERHEAD_REMOVED
from tracekit.program import Program
from tracekit.replay.step_time import StepTime
from tracekit.run import MeasuredRun
from tracekit.trace import RankTrace

MIN_HOST_FRACTION = 0.1
"""Fraction of a predicted step that a host without own work would save, from which on the profiler's cost is noted."""

EVERY_OP_AND_CALL = "every op and call"
SLOW_OPTIONS = {
    "record_shapes": "shapes",
    "with_stack": "stacks",
    "with_modules": "modules",
    "profile_memory": "memory",
}


class ProfilerCost:
    """What the profiler itself cost the host in a measured run.

    Args:
        run: The run.
        program: What is predicted of it.
    """

    def __init__(self, run: MeasuredRun, program: Program) -> None:
        self._run, self._program = run, program

    @cached_property
    def _is_removed(self) -> bool:
        return any(one.template is PROFILER_OVERHEAD_REMOVED for one in self._run.provenance.assumptions)

    @cached_property
    def _recorded_us(self) -> float:
        """Recorded work of the profiler in a mean step of a mean rank."""
        held_ns = sum(int(table["dur_ns"].sum()) for table in find_stalls_of_steps(self._program))
        return held_ns / 1e3 / self._run.chosen_steps.height

    @cached_property
    def _without(self) -> Program | None:
        """The program without the profiler, if the trace notes how long its steps take then."""
        without_us = self._run.trace.unprofiled_step_us
        try:
            recorded_us = self._run.measured_step.step_time_us
            return scale_host_time(self._program, without_us, recorded_us)[0] if without_us else None
        except TracekitError:
            return None

    def note(
        self, step: StepTime, without_host_us: Callable[[], float], kernel_us: Floats, host_time: float
    ) -> Iterator[Message]:
        """Note the cost in a predicted step, if the CPU limits it and the user hasn't taken the cost out.

        Args:
            step: The predicted step.
            without_host_us: Computes that step with a host without own work.
            kernel_us: Predicted time of each kernel.
            host_time: Factor on the duration of the host's own work.
        """
        if self._is_removed or not step.step_time_us:
            return
        host = 1 - without_host_us() / step.step_time_us
        trace = self._run.trace
        without_us = trace.unprofiled_step_us
        if host >= MIN_HOST_FRACTION and self._without and without_us:
            still_us = self._without.replay_step_time_us(kernel_us, host_time)
            yield told.PROFILER_COST_KNOWN(host_pct=100 * host, step_us=still_us, without_us=without_us)
        else:
            yield from note_host_part(host, self._recorded_us, list_recorded(trace, has_shapes=trace.has_shapes))


def list_recorded(trace: RankTrace, *, has_shapes: bool) -> list[str]:
    """List what the profiler recorded that takes time."""
    is_on = {name: str(trace.metadata.get(name, 0)).lower() in ("1", "true") for name in SLOW_OPTIONS}
    is_on["record_shapes"] |= has_shapes
    return [EVERY_OP_AND_CALL, *(option for name, option in SLOW_OPTIONS.items() if is_on[name])]


def note_host_part(host: float, recorded_us: float, recorded: list[str]) -> Iterator[Message]:
    """Note that the profiler makes the host's part of a predicted step longer, if that is much.

    Args:
        host: Fraction of the step that a host without own work would save.
        recorded_us: Recorded work of the profiler in a mean step of a mean rank.
        recorded: What it recorded, from :func:`list_recorded`.
    """
    if host < MIN_HOST_FRACTION:
        return
    if recorded_us:
        yield told.PROFILER_COST_RECORDED(host_pct=100 * host, recorded_us=recorded_us, recorded=recorded)
    else:
        yield told.PROFILER_COST_UNKNOWN(host_pct=100 * host, recorded=recorded)
