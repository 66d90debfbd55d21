"""One clock for all ranks.

Each host has its own clock, and each GPU's is translated to its host's with an error. A collective in which every rank
needs every other ends on all of them at nearly the same moment; the median difference of these ends is the offset.
"""

from collections.abc import Mapping

import polars as pl

from tracekit.graph.ranks.match import SYNCHRONISING


def align(matched: pl.DataFrame) -> dict[int, int]:
    """How far each rank's clock is ahead of the first one's, from the lowest rank outwards over shared collectives.

    Args:
        matched: As :func:`tracekit.graph.ranks.match.match` gives it.

    Returns:
        By rank. Those that share no such collective with the others aren't in it: their clock is taken as recorded.
    """
    ends = matched.filter(pl.col("kind").is_in(SYNCHRONISING)).select("collective", "rank", "end_ns")
    ranks = matched["rank"].unique().sort().to_list()
    ahead = {ranks[0]: 0} if ranks else {}
    while found := _next(ends, ahead):
        ahead |= found
    return ahead


def _next(ends: pl.DataFrame, ahead: Mapping[int, int]) -> dict[int, int]:
    """Offsets of the ranks that share collectives with those whose offset is known."""
    offsets = pl.DataFrame(
        {"rank": list(ahead), "ahead": list(ahead.values())}, schema={"rank": pl.Int64, "ahead": pl.Int64}
    )
    corrected = ends.join(offsets, on="rank").with_columns(pl.col("end_ns") - pl.col("ahead"))
    known = corrected.group_by("collective").agg(at=pl.col("end_ns").median())
    others = ends.filter(~pl.col("rank").is_in(list(ahead))).join(known, on="collective")
    found = others.group_by("rank").agg(ahead=(pl.col("end_ns") - pl.col("at")).median().round())
    return {rank: int(offset) for rank, offset in found.iter_rows()}
