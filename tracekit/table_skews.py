"""How look-ups in tables of a captured recommender are distributed, where its configuration says so table by table."""

from collections.abc import Mapping
from dataclasses import dataclass

from tracekit.capture_facts import CaptureFacts
from tracekit.index_distribution import USUAL_ALPHA, IndexDistribution, IndexPattern, get_distribution


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
