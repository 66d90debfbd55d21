"""Expect how often a look-up draws each row of its table, from the distribution of the indices.

No trace records the indices. What they cost depends on how many rows are drawn at all, how often the most frequent one,
and how much a cache must hold until most of what is drawn again is found in it. A distribution tells all of them: by
Zipf's law, where the n-th most frequent row is drawn with a probability as ``1 / n ** alpha``, or by counts of recorded
indices. The sums over rows go over groups of rows of nearly the same probability, so that a table of a billion rows
takes no longer than one of a thousand:

    rows     1 | 2 | 3 | ... | 256 | 257 to 264 | 265 to 273 | ... | up to the last
    groups   one row each          | 3 % more rows in each
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from tracekit.arrays import Floats, Ints
from tracekit.models.captured import CaptureFacts

SINGLE_ROWS = 256
"""The most frequent rows, of which each is a group of its own."""
GROUP_GROWTH = 1.03
MAX_COUNT = 2**50
"""Rows and draws are at most as many: no table has more, and the sums stay exact."""
UNIFORM_ALPHA, USUAL_ALPHA, SKEWED_ALPHA = 0.0, 1.05, 1.2
"""Exponents: of even indices, the one that stands for an unknown distribution, and of skewed indices. Published
benchmarks of recommenders draw with 1.05 to 1.2 (NVIDIA/recsys-examples); words of a text come with about 1."""
BISECTION_STEPS = 40
MAX_DRAWN_RATIO = 2.0
"""How many times the recorded draws those of the rare rows may be: if more, no Poisson distribution tells their number,
and the rows drawn once and twice are all there are."""
MIN_RARE_MEAN = 1e-3
"""How often a row is drawn in the mean, at least, where hardly any was drawn twice: more draws find more rows."""


@dataclass(frozen=True, eq=False)
class IndexDistribution:
    """Draws from the rows of a table, or the mean of several tables.

    Attributes:
        counts: Rows of each group.
        shares: Probability of each row of a group: a table's sum up to 1.
        tables: Tables that the groups are of; what is expected is the mean of a table.
    """

    counts: Floats
    shares: Floats
    tables: int = 1

    @classmethod
    def from_zipf(cls, rows: int, alpha: float) -> "IndexDistribution":
        """Return the distribution by Zipf's law.

        ``rows`` are at least 1; ``alpha`` is 0 for even draws.
        """
        single = np.arange(1.0, min(rows, SINGLE_ROWS) + 1)
        if rows <= SINGLE_ROWS:
            first, counts = single, np.ones_like(single)
        else:
            groups = int(np.ceil(np.log(rows / SINGLE_ROWS) / np.log(GROUP_GROWTH)))
            edges = np.unique(np.round(np.geomspace(SINGLE_ROWS + 1, rows + 1, groups + 1)))
            first = np.append(single, (edges[:-1] + edges[1:] - 1) / 2)
            counts = np.append(np.ones_like(single), np.diff(edges))
        weight = first**-alpha
        return cls(counts, weight / (counts * weight).sum())

    def expect_unique(self, draws: float) -> float:
        """Expect the number of rows that are drawn at least once."""
        return float((self.counts * self._compute_seen(min(draws, MAX_COUNT))).sum()) / self.tables

    def expect_most_frequent(self, draws: float) -> float:
        """Expect how often the most frequent row is drawn, at least once.

        Without skew, this is the mean number of draws of a row: some row's are a few more.
        """
        draws = min(draws, MAX_COUNT)
        return max(draws * float(self.shares.max()), min(1.0, draws))

    def expect_parts(self, draws: float, size: int) -> float:
        """Expect the number of parts of at most ``size`` draws that the draws of all rows fall into.

        A row's last part is half empty in the mean. Of rows that are hardly ever drawn, the only part counts.
        """
        draws = min(draws, MAX_COUNT)
        seen = self._compute_seen(draws)
        parts = np.maximum(seen, draws * self.shares / size + seen * (size - 1) / (2 * size))
        return min(float((self.counts * parts).sum()) / self.tables, float(draws))

    def expect_hits(self, rows: float) -> float:
        """Expect the share of draws that a cache of the most frequent ``rows`` answers."""
        order = np.argsort(-self.shares, kind="stable")
        counts, shares = self.counts[order], self.shares[order]
        before = np.cumsum(counts) - counts
        return float((np.clip(rows * self.tables - before, 0.0, counts) * shares).sum()) / self.tables

    def expect_reuse_rows(self, draws: float) -> float:
        """Expect how many rows a cache must hold so that half of the draws of rows drawn before are found in it.

        A cache that drops what was used least recently holds a row for as many draws as it takes to draw as many other
        rows as it has room for (Che's approximation: Che, Tung and Wang, 2002). A row with probability p was drawn in
        the last T draws with a probability of ``1 - exp(-p T)``.

        Returns:
            The number of rows; 0 where no row is drawn again.
        """
        draws = min(draws, MAX_COUNT)
        again = draws - self.expect_unique(draws)
        if again < 1:
            return 0.0
        drawn, low, high = self.counts * self.shares * draws / self.tables, 0.0, float(np.log(draws))
        for _ in range(BISECTION_STEPS):
            middle = (low + high) / 2
            found = float((drawn * -np.expm1(-self.shares * np.exp(middle))).sum())
            low, high = (middle, high) if found < again / 2 else (low, middle)
        return self.expect_unique(round(np.exp(high)))

    def expect_missed(self, draws: float, cached_rows: float) -> float:
        """Expect how many of the rows drawn at least once aren't in a cache that has long been in use.

        It drops what was used least recently, as in ``expect_reuse_rows``.
        """
        if cached_rows >= self.counts.sum() / self.tables:
            return 0.0
        low, high = 0.0, float(np.log(MAX_COUNT))
        for _ in range(BISECTION_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.expect_unique(np.exp(middle)) < cached_rows else (low, middle)
        seen = self._compute_seen(min(draws, MAX_COUNT))
        return float((self.counts * seen * (1 - self._compute_seen(np.exp(high)))).sum()) / self.tables

    def compute_part_shares(self, part: "TablePart") -> Floats:
        """Compute what share of all draws falls into each part of the table."""
        singles, places, rest = self._place_rows(part)
        spread = (rest.counts * rest.shares).sum() / part.parts
        shares = np.bincount(places, singles, minlength=part.parts) + spread
        return np.asarray(shares / self.tables)

    def take_part(self, part: "TablePart") -> "IndexDistribution":
        """Return the distribution of the draws that fall into a part of the table."""
        singles, places, rest = self._place_rows(part)
        mine = singles[places == part.place]
        counts = np.append(np.ones_like(mine), rest.counts / part.parts)
        shares = np.append(mine, rest.shares)
        return IndexDistribution(counts, shares * self.tables / max((counts * shares).sum(), 1e-300), self.tables)

    def _place_rows(self, part: "TablePart") -> tuple[Floats, Ints, "IndexDistribution"]:
        """Place the most frequent rows on parts by a hash; return their probabilities, their parts, and the rest."""
        order = np.argsort(-self.shares, kind="stable")
        counts, shares = self.counts[order], self.shares[order]
        whole = np.where(np.cumsum(counts) <= SINGLE_ROWS * self.tables, np.floor(counts), 0.0)
        singles = np.repeat(shares, whole.astype(np.int64))
        places = np.random.default_rng(part.seed).integers(part.parts, size=singles.size)
        return singles, places, IndexDistribution(counts - whole, shares, self.tables)

    def _compute_seen(self, draws: float) -> Floats:
        """Compute the probability that a row of each group is drawn."""
        return np.asarray(-np.expm1(draws * np.log1p(-np.minimum(self.shares, 1 - 1e-12))))


@dataclass(frozen=True, slots=True)
class TablePart:
    """A part of a table's rows, which a hash of the row chooses.

    Attributes:
        rows: Of the whole table.
        parts: Parts of it.
        place: Number of the part.
        seed: Of the hash.
    """

    rows: int
    parts: int
    place: int = 0
    seed: int = 0


class IndexPattern(Protocol):
    """How look-ups are distributed over the rows of tables of any size."""

    def __hash__(self) -> int: ...

    def get_distribution(self, rows: int) -> IndexDistribution:
        """Return the distribution over a table of so many rows."""
        ...


@dataclass(frozen=True, slots=True)
class ZipfPattern:
    """Look-ups by Zipf's law.

    Attributes:
        alpha: The exponent; 0 for even draws.
    """

    alpha: float

    def get_distribution(self, rows: int) -> IndexDistribution:
        """Return the distribution over a table of so many rows."""
        return get_distribution(rows, self.alpha)


USUAL_PATTERN = ZipfPattern(USUAL_ALPHA)
BRACKET = (ZipfPattern(UNIFORM_ALPHA), ZipfPattern(SKEWED_ALPHA))
"""The patterns at both ends of what is likely, where nobody knows."""


def get_part_distribution(pattern: IndexPattern, rows: int, part: TablePart | None) -> IndexDistribution:
    """Return the distribution over a table of ``rows``, or over a part of a larger one."""
    if part is None:
        return pattern.get_distribution(rows)
    return pattern.get_distribution(part.rows).take_part(part)


@lru_cache(maxsize=256)
def get_distribution(rows: int, alpha: float = USUAL_ALPHA) -> IndexDistribution:
    """Return the distribution over a table's rows by Zipf's law; the groups are computed once."""
    return IndexDistribution.from_zipf(min(max(rows, 1), MAX_COUNT), alpha)


def join_distributions(distributions: Sequence[IndexDistribution]) -> IndexDistribution:
    """Join the distributions of several tables to the mean of a table."""
    counts, shares = (np.concatenate([getattr(one, name) for one in distributions]) for name in ("counts", "shares"))
    return IndexDistribution(counts, shares, sum(one.tables for one in distributions))


@dataclass(frozen=True, slots=True)
class RecordedPattern:
    """Look-ups as they were recorded, of one table or the mean of several."""

    recorded: IndexDistribution

    def get_distribution(self, rows: int) -> IndexDistribution:
        """Return the distribution over a table of so many rows, of which the rarest may never have been drawn.

        A table of fewer rows than were recorded has the most frequent ones.
        """
        return self.recorded if rows >= self.recorded.counts.sum() / self.recorded.tables else self._keep(rows)

    def _keep(self, rows: int) -> IndexDistribution:
        known = self.recorded
        order = np.argsort(-known.shares, kind="stable")
        counts, shares = known.counts[order], known.shares[order]
        kept = np.clip(rows * known.tables - (np.cumsum(counts) - counts), 0.0, counts)
        return IndexDistribution(kept, shares * known.tables / (kept * shares).sum(), known.tables)


def estimate_distribution(times: Floats, rows: Floats) -> IndexDistribution:
    """Estimate the distribution of a table, so many rows of which were drawn so many times.

    Most rare rows weren't drawn by chance. The rows drawn once and twice, ``f1`` and ``f2``, are taken for those of a
    class of ``K`` rows, each drawn ``m`` times in the mean by a Poisson distribution::

        f1 = K m exp(-m),  f2 = K m^2 / 2 exp(-m)
        m = 2 f2 / f1,     K = f1 / (m exp(-m))

    What the class has of higher counts is taken off the rows that were drawn as often.
    """
    counted = np.round(times)
    once, twice = (float(rows[counted == count].sum()) for count in (1, 2))
    mean = max(2 * twice / once, MIN_RARE_MEAN) if once else 2.0
    log_drawn = mean + np.log(once) if once else -np.inf
    if log_drawn > np.log(MAX_DRAWN_RATIO * (times * rows).sum()):
        once, twice, mean = 0.0, once + twice, (once + 2 * twice) / (once + twice)
    rare = once / (mean * np.exp(-mean)) if once else twice
    often = counted > 2
    likely = np.exp(-mean + counted[often] * np.log(mean) - _compute_log_factorials(counted[often]))
    counts = np.append(np.maximum(rows[often] - (rare * likely if once else 0.0), 0.0), rare)
    expected = np.append(times[often], mean)
    return IndexDistribution(counts, expected / (counts * expected).sum())


def _compute_log_factorials(numbers: Floats) -> Floats:
    """Compute the logarithms of factorials by Stirling's series, within 1e-4 from 3 on."""
    return np.asarray(numbers * np.log(numbers) - numbers + np.log(2 * np.pi * numbers) / 2 + 1 / (12 * numbers))


@dataclass(frozen=True, slots=True, eq=False)
class TableSkews:
    """Look-ups by Zipf's law, with an exponent for each size of a table.

    Attributes:
        alphas: Rows of a table -> its exponent.
    """

    alphas: Mapping[int, float]

    def get_distribution(self, rows: int) -> IndexDistribution:
        """Return the distribution over a table of so many rows."""
        return get_distribution(rows, self.alphas.get(rows, USUAL_ALPHA))


def find_table_skews(facts: CaptureFacts | None) -> IndexPattern | None:
    """Find how a captured program looks up rows; None where its configuration doesn't say.

    Tables of one size have their mean exponent; those without one have the usual.
    """
    tables = facts.tables if facts else ()
    if all(table.alpha is None for table in tables):
        return None
    given: dict[int, list[float]] = {}
    for table in tables:
        given.setdefault(table.rows, []).extend([USUAL_ALPHA if table.alpha is None else table.alpha] * table.count)
    return TableSkews({rows: sum(alphas) / len(alphas) for rows, alphas in given.items()})
