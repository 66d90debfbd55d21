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
"""A recording that starts or ends inside a collective lacks about one in twelve; a profiler that drops kernels lacks
most."""


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
    """Find ranks that lost kernels and recorded over 10 % fewer collectives than the other members of their groups.

    Returns:
        These ranks; None if there are none.
    """
    if len(recorded) < 2 or not any(one.lost_launches for one in recorded):
        return None
    counted = pl.concat([_count_by_group(one) for one in recorded])
    found = []
    for place, one in enumerate(recorded):
        if one.lost_launches:
            expected, own = _count_expected_and_own(counted, one, len(recorded))
            if expected - own > MAX_LACKING_FRACTION * expected:
                found.append((place, one, round(expected - own)))
    if not found:
        return None
    places, lacking, collectives = zip(*found, strict=True)
    return LackingRanks(
        places, tuple(one.rank for one in lacking), sum(collectives), sum(one.lost_launches for one in lacking)
    )


def _count_by_group(one: RecordedCollectives) -> pl.DataFrame:
    """Count the collectives of one rank by group: ``rank``, ``group``, ``members``, ``size``, ``per_step``."""
    rows = one.kernels.filter(pl.col("family") == "collective", pl.col("collective") != MESSAGE_KIND)
    return rows.group_by(group=GROUP_NAME.fill_null("?"), members="group_ranks", size="ranks").agg(
        rank=pl.lit(one.rank, pl.Int64), per_step=pl.len() / max(one.steps, 1)
    )


def _count_expected_and_own(counted: pl.DataFrame, one: RecordedCollectives, ranks: int) -> tuple[float, float]:
    """Count the collectives of a rank's groups: by the recordings of others, and by its own."""
    is_listed = pl.col("members").str.contains(rf"\b{one.rank}\b")
    is_of_all = pl.col("members").is_null() & (pl.col("size").fill_null(ranks) >= ranks)
    of_others = counted.filter(pl.col("rank") != one.rank, is_listed.fill_null(False) | is_of_all)
    expected = of_others.group_by("group", "size").agg(pl.col("per_step").median())["per_step"].sum()
    own = counted.filter(pl.col("rank") == one.rank)["per_step"].sum()
    return float(expected) * one.steps, float(own) * one.steps
