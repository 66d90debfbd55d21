"""Rank targets by a figure, as far as the intervals allow."""

from collections.abc import Sequence
from math import hypot, log

from tracekit.reporting.figure import Figure


def rank_figures(figures: Sequence[Figure | None], is_excluded: Sequence[bool]) -> list[int]:
    """Return the rank of each of some figures, of which the lowest is the best: one more than the surely better ones.

    Two figures share a rank where neither is surely better. So ranks don't depend on the order of the figures, and one
    with a wide interval has the best rank that it may have.

    Args:
        figures: The figures; unknown ones rank behind all known ones.
        is_excluded: Which ones rank behind all others, such as GPUs with too little memory.
    """
    groups = [(excluded, figure is None) for figure, excluded in zip(figures, is_excluded, strict=True)]
    entries = list(zip(groups, figures, strict=True))
    return [1 + sum(_is_surely_better(other, one) for other in entries) for one in entries]


def _is_surely_better(
    one: tuple[tuple[bool, bool], Figure | None], other: tuple[tuple[bool, bool], Figure | None]
) -> bool:
    (group, figure), (other_group, other_figure) = one, other
    if figure is None or other_figure is None or group != other_group:
        return group < other_group
    return is_surely_less(figure, other_figure)


def is_surely_less(one: Figure, other: Figure) -> bool:
    """Return whether one figure is less than another by more than their intervals leave open.

    The ratio of two log-normal figures with independent errors has the hypotenuse of both half-widths. Errors of two
    targets are predicted from the same measured step by the same model, hence positively correlated, which makes the
    ratio more certain than that: independence is the careful assumption.
    """
    if one.likely >= other.likely:
        return False
    if min(one.low, other.low) <= 0:
        return one.high < other.low
    return log(other.likely / one.likely) > hypot(log(one.high / one.likely), log(other.likely / other.low))
