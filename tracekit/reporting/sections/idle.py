"""Causes of the measured GPU's idle time."""

from collections.abc import Iterator
from dataclasses import dataclass

from tracekit.analysis.idle import IdleBreakdown, attribute_idle_time
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.messages import Message
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of the measured GPU for one cause; all of them add up to the step's idle and waiting time.

    Attributes:
        cause: Name of the cause.
        meaning: What it means, one clause.
        time_us: Time in the median step.
        share: Percent of the step.
        op: The op whose launches ended most of it; ``None`` if the step's end did.
        line: The Python function whose launches ended most of it; ``None`` if stacks weren't read.
    """

    cause: str
    meaning: Message
    time_us: float
    share: float
    op: str | None
    line: str | None


def analyze_idle_time(run: MeasuredRun) -> IdleBreakdown:
    """Attribute the measured GPU's idle time to causes."""
    return attribute_idle_time(run.program, run.measured_timeline)


def build_idle_times(run: MeasuredRun, idle: IdleBreakdown) -> tuple[IdleTime, ...]:
    """Build the causes, longest first."""
    return tuple(_iter_idle_times(run, idle))


def _iter_idle_times(run: MeasuredRun, idle: IdleBreakdown) -> Iterator[IdleTime]:
    ops, lines = (idle.find_longest(run.kernels, column) for column in ("op", "python_line"))
    for cause, time_us, _ in idle.sum_by_cause().iter_rows():
        share = 100 * time_us / run.measured_step.step_time_us
        yield IdleTime(cause, CAUSE_MEANINGS[IdleCause(cause)], time_us, share, ops.get(cause), lines.get(cause))
