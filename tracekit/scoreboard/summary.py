"""How the predictions of each group came out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tracekit.scoreboard.interval_rule import compute_width_factor
from tracekit.scoreboard.outcome import Outcome, PredictionGroup


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """How the predictions of one group came out.

    Attributes:
        target: The GPU predicted for.
        kind: Kind of job.
        is_on_several: Whether several GPUs work together.
        is_same_gpu: Whether the job was traced on that GPU.
        outcomes: Number of outcomes.
        inside: How many of them lay in their interval.
        median_error_pct: Median error, percent of the measured step; positive: predicted too slow.
        worst_error_pct: The error of largest size.
        factor: Factor on the half-widths of later intervals, by the outcomes of the weights in use.
    """

    target: str
    kind: str
    is_on_several: bool
    is_same_gpu: bool
    outcomes: int
    inside: int
    median_error_pct: float
    worst_error_pct: float
    factor: float


def summarize_outcomes(outcomes: Sequence[Outcome], weights: str) -> tuple[GroupSummary, ...]:
    """Summarize outcomes by group, those with most outcomes first.

    Args:
        outcomes: The outcomes.
        weights: Beginning of the SHA-256 of the weights in use.
    """
    groups: dict[PredictionGroup, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(one.group, []).append(one)
    return tuple(sorted(_summarize(groups, weights), key=lambda row: (-row.outcomes, row.target, row.kind)))


def _summarize(groups: dict[PredictionGroup, list[Outcome]], weights: str) -> Iterator[GroupSummary]:
    for group, found in groups.items():
        errors = [one.error_pct for one in found]
        yield GroupSummary(
            *group,
            outcomes=len(found),
            inside=sum(one.is_inside for one in found),
            median_error_pct=median(errors),
            worst_error_pct=max(errors, key=abs),
            factor=compute_width_factor([one.score for one in found if one.weights == weights]),
        )
