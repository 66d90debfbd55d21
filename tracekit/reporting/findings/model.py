"""What a finding says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that holds the step back, or that a reader must know.

    Attributes:
        title: One sentence with its numbers.
        advice: What to try.
        saves_us: Step time that it would save, by replay; ``None`` where that isn't known.
    """

    title: str
    advice: str
    saves_us: float | None
