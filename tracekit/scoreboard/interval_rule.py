"""By how much outcomes widen or narrow later intervals: conformal prediction, with the shipped errors as a start.

An outcome's score is its error over the interval's half-width on that side, so that 90 % of the scores of well-made
intervals are at most 1. Conformal prediction (Vovk et al. 2005; Lei et al. 2018) multiplies the half-widths by a
quantile of past scores. If past and future scores are exchangeable, an interval by the ``ceil(0.9 (n + 1))``-th
smallest of n scores holds the next outcome with a probability of at least 90 %, whatever the scores' distribution. That
takes n >= 9: with fewer, the rank lies beyond the largest score.

The shipped intervals are calibrated by errors that tracekit was tested with. ``SHIPPED_SCORES`` stand for them: 19
scores at the 5 %, 10 %, ..., 95 % quantiles of a normal error whose 90 % quantile is 1. The 18th is 1, and it is what
conformal prediction takes of 19: without outcomes nothing changes. Outcomes are pooled with them, which weights both by
count: the user's own errors count half after 19 outcomes.

The factor is the pooled quantile, but never narrower than the outcomes alone support: with fewer than nine at least 1,
with more at least their own quantile. So the guarantee of 90 % holds for the user's own jobs from nine outcomes on;
before, surprises only widen.
"""

from collections.abc import Sequence
from math import ceil
from statistics import NormalDist

COVERAGE = 0.9
MIN_OUTCOMES_TO_NARROW = 9
"""Fewest outcomes whose largest score supports a coverage of 90 %."""
_QUANTILES = 19
SHIPPED_SCORES = tuple(
    NormalDist().inv_cdf((1 + place / (_QUANTILES + 1)) / 2) / NormalDist().inv_cdf((1 + COVERAGE) / 2)
    for place in range(1, _QUANTILES + 1)
)


def compute_width_factor(scores: Sequence[float]) -> float:
    """Compute the factor on the half-widths, as logarithms, of an interval.

    Args:
        scores: Scores of the outcomes of such predictions.
    """
    pooled = _find_conformal_quantile([*SHIPPED_SCORES, *scores])
    own = _find_conformal_quantile(scores) if len(scores) >= MIN_OUTCOMES_TO_NARROW else 1.0
    return max(pooled, own)


def _find_conformal_quantile(scores: Sequence[float]) -> float:
    # Rounded first: 0.9 times ten is a little more than nine in binary.
    rank = ceil(round(COVERAGE * (len(scores) + 1), 9))
    return sorted(scores)[rank - 1]
