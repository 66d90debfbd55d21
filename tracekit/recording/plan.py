"""Plan which of a program's steps are skipped, timed and recorded."""

from dataclasses import dataclass

from tracekit.errors import TracekitError


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
            raise TracekitError(
                f"{self} records nothing.", "Give counts of steps of 0 or more, and at least one active step."
            )

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
        return (
            f"{self.wait} steps of warm-up, {self.timed} timed without the profiler, {self.warmup} to warm it up, "
            f"{self.active} recorded"
        )
