"""Find ranks whose recordings lack collectives in which other ranks took part.

Semantics: all ranks of a group take part in its collectives. Heuristic: how many may be missing at the edges of a
recording.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.graph.ranks.match import GROUP_NAME, MESSAGE_KIND
from tracekit.ingest.ranks import abbreviate_ranks
from tracekit.messages import Message
from tracekit.messages.traces import RANKS_LACK_COLLECTIVES

MAX_LACKING_FRACTION = 0.1
"""Recordings that begin or end while a collective runs lack one of a dozen; profilers that lose kernels lose most."""


@dataclass(frozen=True, slots=True)
class RecordedCollectives:
    """What the recording of one rank holds of its job's collectives.

    Attributes:
        kernels: The kernel table; its collectives alone will do.
        lost_launches: Launches without a kernel.
    """

    rank: int
    kernels: pl.DataFrame
    steps: int
    lost_launches: int


@dataclass(frozen=True, slots=True)
class LackingRanks:
    """Ranks whose recordings lack collectives.

    Attributes:
        places: Their places among the ranks.
        collectives: How many they lack.
        launches: How many of their launches have no kernel.
    """

    places: tuple[int, ...]
    ranks: tuple[int, ...]
    collectives: int
    launches: int

    def to_message(self) -> Message:
        """Say that they are left out."""
        return RANKS_LACK_COLLECTIVES(
            ranks=abbreviate_ranks(self.ranks), collectives=self.collectives, launches=self.launches
        )


def find_lacking_ranks(recorded: Sequence[RecordedCollectives]) -> LackingRanks | None:
    """Find the ranks that lost kernels, and among them collectives of which others of their groups have more a step.

    Returns:
        These ranks; None if there are none.
    """
    if len(recorded) < 2 or not any(one.lost_launches for one in recorded):
        return None
    counted = pl.concat([_count_by_group(one) for one in recorded])
    found = []
    for place, one in enumerate(recorded):
        if one.lost_launches:
            expected, own = _compare(counted, one, len(recorded))
            if expected - own > MAX_LACKING_FRACTION * expected:
                found.append((place, one, round(expected - own)))
    if not found:
        return None
    places, lacking, collectives = zip(*found, strict=True)
    return LackingRanks(
        places, tuple(one.rank for one in lacking), sum(collectives), sum(one.lost_launches for one in lacking)
    )


def _count_by_group(one: RecordedCollectives) -> pl.DataFrame:
    """Count the collectives of one rank by group: ``rank``, ``group``, ``members``, ``size``, ``each`` in a step."""
    rows = one.kernels.filter(pl.col("family") == "collective", pl.col("collective") != MESSAGE_KIND)
    return rows.group_by(group=GROUP_NAME.fill_null("?"), members="group_ranks", size="ranks").agg(
        rank=pl.lit(one.rank, pl.Int64), each=pl.len() / max(one.steps, 1)
    )


def _compare(counted: pl.DataFrame, one: RecordedCollectives, ranks: int) -> tuple[float, float]:
    """Return how many collectives the groups of a rank had by the recordings of others, and how many by its own."""
    is_listed = pl.col("members").str.contains(rf"\b{one.rank}\b")
    is_of_all = pl.col("members").is_null() & (pl.col("size").fill_null(ranks) >= ranks)
    of_others = counted.filter(pl.col("rank") != one.rank, is_listed.fill_null(False) | is_of_all)
    expected = of_others.group_by("group", "size").agg(pl.col("each").median())["each"].sum()
    own = counted.filter(pl.col("rank") == one.rank)["each"].sum()
    return float(expected) * one.steps, float(own) * one.steps
