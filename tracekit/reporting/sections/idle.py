"""Why the measured GPU was idle."""

from collections.abc import Iterator
from dataclasses import dataclass

from tracekit.replay.causes import MEANING, Cause
from tracekit.replay.engine import measured
from tracekit.replay.idle import END_OF_STEP, Idle, attribute
from tracekit.replay.run import Run


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Time in which the measured GPU ran nothing, for one reason.

    Attributes:
        cause: The reason's name.
        meaning: What it means, one clause.
        time_us: In a mean step.
        share: Of all idle time.
        op: The op whose launches ended most of it; ``None`` if it was the end of the step.
        line: Likewise the Python function that launched; ``None`` where stacks weren't read.
    """

    cause: str
    meaning: str
    time_us: float
    share: float
    op: str | None
    line: str | None


def of(run: Run) -> Idle:
    """The measured GPU's idle time by cause."""
    return attribute(run, measured(run.graph))


def build(run: Run, idle: Idle) -> tuple[IdleTime, ...]:
    """The causes, longest first."""
    return tuple(_causes(run, idle))


def _causes(run: Run, idle: Idle) -> Iterator[IdleTime]:
    for cause, time_us, part in idle.by_cause().iter_rows():
        op, line = (_longest(run, idle, Cause(cause), column) for column in ("op", "python_line"))
        yield IdleTime(cause, MEANING[Cause(cause)], time_us, 100 * part, op, line)


def _longest(run: Run, idle: Idle, cause: Cause, column: str) -> str | None:
    """What launched the kernels that ended most of the idle time of one cause."""
    rows = idle.by_op(run.kernels, cause, column=column)
    return None if rows.is_empty() or rows[column][0] == END_OF_STEP else rows[column][0]
