"""Choose the ticks of logarithmic axes."""

from collections.abc import Sequence
from math import ceil, floor, log10

MULTIPLES = (1, 2, 5)


def choose_ticks(
    limits: tuple[float, float], multiples: Sequence[float] = MULTIPLES, form: str = "{:,.10g}"
) -> tuple[tuple[float, str], ...]:
    """Return the given multiples of each power of ten within the limits, each with its text."""
    powers = range(floor(log10(limits[0])), ceil(log10(limits[1])))
    values = [multiple * 10.0**power for power in powers for multiple in multiples]
    return tuple((value, form.format(value)) for value in values if limits[0] <= value <= limits[1])
