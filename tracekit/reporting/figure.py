"""A value with its interval."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_US = 1e-3
"""Least time that is divided by: a nanosecond, where all of a step may be none."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with its 90 % interval.

    Attributes:
        likely: The likely value.
        low: Lower end of the interval.
        high: Upper end.
    """

    likely: float
    low: float
    high: float

    @classmethod
    def from_exact(cls, value: float) -> Figure:
        """Return the figure of a value that was measured or given."""
        return cls(value, value, value)

    @property
    def ordered(self) -> tuple[float, float, float]:
        """Low end, likely value, high end: as messages take it."""
        return self.low, self.likely, self.high

    @property
    def is_exact(self) -> bool:
        """Whether nothing is open."""
        return self.low == self.high

    def scale(self, factor: float) -> Figure:
        """Return ``factor`` times the value; the factor isn't negative."""
        return Figure(factor * self.likely, factor * self.low, factor * self.high)

    def multiply(self, other: Figure) -> Figure:
        """Return the product of two values of which nobody knows whether their errors are independent."""
        return Figure(self.likely * other.likely, self.low * other.low, self.high * other.high)

    def invert(self, numerator: float = 1.0) -> Figure:
        """Return a number over this time in microseconds: its low end is that over the high end."""
        return Figure(numerator / self.likely, numerator / self.high, numerator / max(self.low, LEAST_US))
