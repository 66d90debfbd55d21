"""Data classes of findings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """One row that shows the finding.

    Attributes:
        what: An op with its shapes, a call, or a step.
        time_us: Its time per step; ``None`` if that isn't meaningful.
        detail: What is wrong with it, or how often it happens.
    """

    what: str
    time_us: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that limits the step or that the reader must know.

    Attributes:
        kind: Short and stable name, for programs.
        title: One sentence with numbers.
        advice: What to try.
        saves_us: Step time that it would save, by replay; ``None`` if unknown.
        evidence: The rows that show it, longest first.
        on: The target it applies to; ``None`` for the measured run.
    """

    kind: str
    title: str
    advice: str
    saves_us: float | None
    evidence: tuple[Evidence, ...] = ()
    on: str | None = None
