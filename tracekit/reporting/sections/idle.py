"""Causes of the measured GPU's idle time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from tracekit.analysis.idle import IdleBreakdown, attribute_idle_time
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.messages import Message
from tracekit.reporting.columns import Column
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of the measured GPU for one cause; all of them add up to the step's idle and waiting time."""

    cause: Annotated[str, Column("The reason's name.")]
    meaning: Annotated[Message, Column("What it means.", "why")]
    time_us: Annotated[float, Column("Time in the median step.", "time")]
    share: Annotated[float, Column("Of the step, percent.", "of the step")]
    op: Annotated[str | None, Column("The op whose launches ended most of it; blank if the step's end did.", "before")]
    line: Annotated[str | None, Column("The Python function that launched most of what ended it.", "launched in")]


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
