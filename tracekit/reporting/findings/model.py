"""What a finding says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """One row that shows it.

    Attributes:
        what: An op with its shapes, a call, a step.
        time_us: How long it takes per step; ``None`` where that says nothing.
        detail: What is wrong with it, or how often it happens.
    """

    what: str
    time_us: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that holds the step back, or that a reader must know.

    Attributes:
        kind: Short name, stable: for programs.
        title: One sentence with its numbers.
        advice: What to try.
        saves_us: Step time that it would save, by replay; ``None`` where that isn't known.
        evidence: The rows that show it, longest first.
        on: The target that it is about; ``None``: the measured run.
    """

    kind: str
    title: str
    advice: str
    saves_us: float | None
    evidence: tuple[Evidence, ...] = ()
    on: str | None = None
