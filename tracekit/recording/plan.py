"""Which of a program's steps are skipped, timed and recorded."""

from dataclasses import dataclass

from tracekit.errors import TracekitError


@dataclass(frozen=True, slots=True)
class Plan:
    """How many steps each stage takes, in this order.

    Attributes:
        wait: Steps left alone: the first ones load kernels, allocate and choose algorithms.
        timed: Steps timed without the profiler.
        warmup: Steps that the profiler throws away, as its own start slows them.
        active: Steps that it records.
    """

    wait: int = 5
    timed: int = 5
    warmup: int = 2
    active: int = 3

    def __post_init__(self) -> None:
        """Refuse counts that record nothing.

        Raises:
            TracekitError: A count is negative, or nothing would be recorded.
        """
        if min(self.wait, self.timed, self.warmup, self.active - 1) < 0:
            raise TracekitError(
                f"{self} records nothing.", "Give counts of steps of 0 or more, and at least one active step."
            )

    @property
    def profiled_from(self) -> int:
        """The step before which the profiler starts."""
        return self.wait + self.timed

    @property
    def recorded_from(self) -> int:
        """The first step that is recorded."""
        return self.profiled_from + self.warmup

    @property
    def total(self) -> int:
        """Steps that a program must take until its trace is complete."""
        return self.recorded_from + self.active

    def __str__(self) -> str:
        """In words."""
        return (
            f"{self.wait} steps of warm-up, {self.timed} timed without the profiler, {self.warmup} to warm it up, "
            f"{self.active} recorded"
        )
