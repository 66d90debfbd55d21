"""One clock for all ranks.

Each host has its own clock, and each GPU's is translated to its host's with an error. A collective in which every rank
needs every other ends on all of them at nearly the same moment; the median difference of these ends is the offset.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.graph.ranks.match import SYNCHRONISING


@dataclass(frozen=True, slots=True)
class Clocks:
    """How far each rank's clock is ahead of the first one's.

    Attributes:
        ahead_ns: By rank. Those that share no such collective with the others aren't in it: their clock is taken as
            recorded.
        residual_ns: How far apart the ends of collectives still are, the median over all of them.
    """

    ahead_ns: Mapping[int, int]
    residual_ns: int


def align(matched: pl.DataFrame) -> Clocks:
    """Offsets of the clocks, from the lowest rank outwards over shared collectives.

    Args:
        matched: As :func:`tracekit.graph.ranks.match.match` gives it.
    """
    ends = matched.filter(pl.col("kind").is_in(SYNCHRONISING)).select("collective", "rank", "end_ns")
    ranks = matched["rank"].unique().sort().to_list()
    ahead = {ranks[0]: 0} if ranks else {}
    while found := _next(ends, ahead):
        ahead |= found
    return Clocks(ahead, _residual(ends, ahead))


def _next(ends: pl.DataFrame, ahead: Mapping[int, int]) -> dict[int, int]:
    """Offsets of the ranks that share collectives with those whose offset is known."""
    known = _corrected(ends, ahead).group_by("collective").agg(at=pl.col("end_ns").median())
    others = ends.filter(~pl.col("rank").is_in(list(ahead))).join(known, on="collective")
    offsets = others.group_by("rank").agg(ahead=(pl.col("end_ns") - pl.col("at")).median().round())
    return {rank: int(offset) for rank, offset in offsets.iter_rows()}


def _corrected(ends: pl.DataFrame, ahead: Mapping[int, int]) -> pl.DataFrame:
    offsets = pl.DataFrame(
        {"rank": list(ahead), "ahead": list(ahead.values())}, schema={"rank": pl.Int64, "ahead": pl.Int64}
    )
    return ends.join(offsets, on="rank").with_columns(pl.col("end_ns") - pl.col("ahead"))


def _residual(ends: pl.DataFrame, ahead: Mapping[int, int]) -> int:
    spread = (
        _corrected(ends, ahead)
        .group_by("collective")
        .agg(apart=pl.col("end_ns").max() - pl.col("end_ns").min(), ranks=pl.len())
    )
    return round(spread.filter(pl.col("ranks") > 1)["apart"].median() or 0)  # type: ignore[arg-type]
