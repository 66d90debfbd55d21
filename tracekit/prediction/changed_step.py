"""A predicted step with other kernel times or another host, for what a note is worth."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from tracekit.arrays import Floats
from tracekit.graph import Graph
from tracekit.program import Program

MIN_CHANGE_FRACTION = 0.01
"""Fraction of the step below which a change isn't worth a note."""


class StepChanges(Protocol):
    """A predicted step, and what it is with changes."""

    @property
    def step_us(self) -> float:
        """The predicted step."""
        ...

    def compute_step_us(self, kernel_factor: Floats | float = 1.0, host_time: float | None = None) -> float:
        """Compute the step with other times, as :meth:`ChangedStep.compute_step_us` does."""
        ...


def is_worth_note(step_us: float, changed_us: float) -> bool:
    """Return whether a step differs enough from a predicted one to be worth a note."""
    return abs(changed_us - step_us) >= MIN_CHANGE_FRACTION * step_us


@dataclass(frozen=True)
class ChangedStep:
    """Replays of a predicted step with changes, on the scale of that step.

    Attributes:
        program: The program that was replayed.
        kernel_us: Predicted time of each kernel.
        host_time: Factor on the duration of the host's own work.
        step_us: The predicted step.
    """

    program: Program
    kernel_us: Floats
    host_time: float
    step_us: float

    def compute_step_us(
        self, kernel_factor: Floats | float = 1.0, host_time: float | None = None, graph: Graph | None = None
    ) -> float:
        """Compute the step with other times.

        Args:
            kernel_factor: Factor on the time of each kernel.
            host_time: As the attribute; ``None`` for the same.
            graph: Its dependencies; ``None`` for the same.
        """
        host = self.host_time if host_time is None else host_time
        program = self.program if graph is None else replace(self.program, graph=graph)
        changed_us = program.replay_step_time_us(self.kernel_us * kernel_factor, host)
        return self.step_us * changed_us / self._replayed_us if self._replayed_us else self.step_us

    def is_changed_by(self, step_us: float) -> bool:
        """Return whether a step differs enough from this one to be worth a note."""
        return is_worth_note(self.step_us, step_us)

    @cached_property
    def _replayed_us(self) -> float:
        return self.program.replay_step_time_us(self.kernel_us, self.host_time)
