"""Plan which of a program's steps are skipped, timed and recorded."""

from dataclasses import dataclass

from tracekit.errors import TracekitError
from tracekit.messages import Message
from tracekit.messages import recordings as messages


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """Number of steps of each stage, in this order.

    Attributes:
        wait: Steps that are skipped: the first ones load kernels, allocate memory and choose algorithms.
        timed: Steps that are timed without the profiler.
        warmup: Steps that the profiler discards, as its own start slows them down.
        active: Steps that it records.
    """

    wait: int = 5
    timed: int = 5
    warmup: int = 2
    active: int = 3

    def __post_init__(self) -> None:
        """Refuse counts that record nothing.

        Raises:
            TracekitError: A count is negative, or no step would be recorded.
        """
        if min(self.wait, self.timed, self.warmup, self.active - 1) < 0:
            raise TracekitError(messages.PLAN_EMPTY(plan=str(self)))

    @property
    def first_profiled_step(self) -> int:
        """Index of the step before which the profiler starts."""
        return self.wait + self.timed

    @property
    def first_recorded_step(self) -> int:
        """Index of the first recorded step."""
        return self.first_profiled_step + self.warmup

    @property
    def total_steps(self) -> int:
        """Number of steps that a program must take until its trace is complete."""
        return self.first_recorded_step + self.active

    def __str__(self) -> str:
        """Describe the plan in words."""
        return str(self.to_message())

    def to_message(self) -> Message:
        """Describe the plan."""
        return messages.RECORDING_PLANNED(wait=self.wait, timed=self.timed, warmup=self.warmup, active=self.active)
