"""One clock for all ranks.

Each host has its own clock, and each GPU's clock is translated to its host's with an error. A collective in which every
rank needs every other ends on all ranks at nearly the same time; the median difference of these ends is the clock
offset.
"""

from collections.abc import Mapping

import polars as pl

from tracekit.graph.ranks.match import SYNCHRONISING_KINDS
from tracekit.rules import Rule, RuleNames

RULE = Rule(
    "rank-clocks",
    "Collectives that need every rank end on all ranks at once, which gives the ranks' clock offsets.",
    "Two jobs: mi300x_ddp_train of 4 ranks and v100_dlrm_train of 8; `tracekit explain replay` has more.",
)


def align_clocks(matched: pl.DataFrame, without: RuleNames) -> dict[int, int]:
    """Return how far each rank's clock is ahead of the first rank's, from the lowest rank over shared collectives.

    Args:
        matched: As :func:`tracekit.graph.ranks.match.match_collectives` returns it.
        without: Inference rules that are off.

    Returns:
        Offset in ns by rank. Ranks that share no such collective with the others are missing: their clock is taken as
            recorded.
    """
    if not RULE.is_on(without):
        return {}
    ends = matched.filter(pl.col("kind").is_in(SYNCHRONISING_KINDS)).select("collective", "rank", "end_ns")
    ranks = matched["rank"].unique().sort().to_list()
    ahead = {ranks[0]: 0} if ranks else {}
    while found := _estimate_offsets(ends, ahead):
        ahead |= found
    return ahead


def _estimate_offsets(ends: pl.DataFrame, ahead: Mapping[int, int]) -> dict[int, int]:
    """Estimate the offsets of the ranks that share collectives with ranks of known offset."""
    offsets = pl.DataFrame(
        {"rank": list(ahead), "ahead": list(ahead.values())}, schema={"rank": pl.Int64, "ahead": pl.Int64}
    )
    corrected = ends.join(offsets, on="rank").with_columns(pl.col("end_ns") - pl.col("ahead"))
    known = corrected.group_by("collective").agg(at=pl.col("end_ns").median())
    others = ends.filter(~pl.col("rank").is_in(list(ahead))).join(known, on="collective")
    found = others.group_by("rank").agg(ahead=(pl.col("end_ns") - pl.col("at")).median().round())
    return {rank: int(offset) for rank, offset in found.iter_rows()}
