"""Expect how often a look-up draws each row of its table, from the distribution of the indices.

No trace records the indices. What they cost depends on how many rows are drawn at all, and how often the most frequent
one. Zipf's law tells both: the n-th most frequent row is drawn with a probability as ``1 / n ** alpha``. The sums over
rows go over groups of rows of nearly the same probability, so that a table of a billion rows takes no longer than one
of a thousand:

    rows     1 | 2 | 3 | ... | 256 | 257 to 264 | 265 to 273 | ... | up to the last
    groups   one row each          | 3 % more rows in each
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from tracekit.arrays import Floats

SINGLE_ROWS = 256
"""The most frequent rows, of which each is a group of its own."""
GROUP_GROWTH = 1.03
MAX_COUNT = 2**50
"""Rows and draws are at most as many: no table has more, and the sums stay exact."""
UNIFORM_ALPHA, USUAL_ALPHA, SKEWED_ALPHA = 0.0, 1.05, 1.2
"""Exponents: of even indices, the one that stands for an unknown distribution, and of skewed indices. Published
benchmarks of recommenders draw with 1.05 to 1.2 (NVIDIA/recsys-examples); words of a text come with about 1."""


@dataclass(frozen=True)
class IndexDistribution:
    """Draws from the rows of a table by Zipf's law.

    Attributes:
        rows: Rows of the table, at least 1.
        alpha: Zipf's exponent; 0 for even draws.
    """

    rows: int
    alpha: float = USUAL_ALPHA

    @cached_property
    def _groups(self) -> tuple[Floats, Floats]:
        """Rows of each group, and the probability of each of its rows."""
        single = np.arange(1.0, min(self.rows, SINGLE_ROWS) + 1)
        if self.rows <= SINGLE_ROWS:
            first, count = single, np.ones_like(single)
        else:
            groups = int(np.ceil(np.log(self.rows / SINGLE_ROWS) / np.log(GROUP_GROWTH)))
            edges = np.unique(np.round(np.geomspace(SINGLE_ROWS + 1, self.rows + 1, groups + 1)))
            first = np.append(single, (edges[:-1] + edges[1:] - 1) / 2)
            count = np.append(np.ones_like(single), np.diff(edges))
        weight = first**-self.alpha
        return count, weight / (count * weight).sum()

    def expect_unique(self, draws: int) -> float:
        """Expect the number of rows that are drawn at least once."""
        count, _ = self._groups
        return float((count * self._compute_seen(min(draws, MAX_COUNT))).sum())

    def expect_most_frequent(self, draws: int) -> float:
        """Expect how often the most frequent row is drawn, at least once.

        Without skew, this is the mean number of draws of a row: some row's are a few more.
        """
        draws = min(draws, MAX_COUNT)
        return max(draws * float(self._groups[1][0]), min(1.0, draws))

    def expect_parts(self, draws: int, size: int) -> float:
        """Expect the number of parts of at most ``size`` draws that the draws of all rows fall into.

        A row's last part is half empty in the mean. Of rows that are hardly ever drawn, the only part counts.
        """
        count, share = self._groups
        draws = min(draws, MAX_COUNT)
        seen = self._compute_seen(draws)
        parts = np.maximum(seen, draws * share / size + seen * (size - 1) / (2 * size))
        return min(float((count * parts).sum()), float(draws))

    def _compute_seen(self, draws: int) -> Floats:
        """Compute the probability that a row of each group is drawn."""
        return np.asarray(-np.expm1(draws * np.log1p(-np.minimum(self._groups[1], 1 - 1e-12))))


@lru_cache(maxsize=256)
def get_distribution(rows: int, alpha: float = USUAL_ALPHA) -> IndexDistribution:
    """Return the distribution over a table's rows; the groups are computed once."""
    return IndexDistribution(min(max(rows, 1), MAX_COUNT), alpha)
