"""Targets on which the step can't be predicted."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.prediction import RefusedTarget


@dataclass(frozen=True, slots=True)
class RefusedStep:
    """A target on which the step can't be predicted.

    Attributes:
        target: Name of the cluster, or of the GPU.
        reason: Why not, one sentence.
        hint: What to try.
    """

    target: str
    reason: str
    hint: str


def build_refused_steps(refused: Sequence[RefusedTarget]) -> tuple[RefusedStep, ...]:
    """Build the refused targets."""
    return tuple(RefusedStep(one.label, one.error.message, one.error.hint) for one in refused)
