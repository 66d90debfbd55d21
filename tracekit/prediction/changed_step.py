"""A predicted step with other kernel times or another host, for what a note is worth."""

from dataclasses import dataclass

from tracekit.prediction.job import JobReplays
from tracekit.prediction.part import LIKELY, Replay

MIN_CHANGE_FRACTION = 0.01
"""Fraction of the step below which a change isn't worth a note."""


def is_worth_note(step_us: float, changed_us: float) -> bool:
    """Return whether a step differs enough from a predicted one to be worth a note."""
    return abs(changed_us - step_us) >= MIN_CHANGE_FRACTION * step_us


@dataclass(frozen=True, slots=True)
class ChangedStep:
    """A predicted step with changes, on the scale of that step.

    Attributes:
        replays: The job's replays.
        host_time: Factor on the duration of the host's own work in the predicted step.
        step_us: The predicted step.
    """

    replays: JobReplays
    host_time: float
    step_us: float

    def compute_step_us(
        self, scaled: tuple[str, float] | None = None, host_time: float | None = None, unknown: int = LIKELY
    ) -> float:
        """Compute the step with other times.

        Args:
            scaled: As of :class:`Replay`.
            host_time: As the attribute; None for the same.
            unknown: As of :class:`Replay`.
        """
        host = self.host_time if host_time is None else host_time
        replayed_us = self.replays.compute_step_us(Replay(host_time=self.host_time))
        changed_us = self.replays.compute_step_us(Replay(LIKELY, host, unknown, scaled))
        return self.step_us * changed_us / replayed_us if replayed_us else self.step_us

    def is_changed_by(self, step_us: float) -> bool:
        """Return whether a step differs enough from this one to be worth a note."""
        return is_worth_note(self.step_us, step_us)
