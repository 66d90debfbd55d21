"""Compute the time that ops and runtime calls take themselves, without what is nested in them."""

import polars as pl

from tracekit.trace import RankTrace


def compute_self_times(rank: RankTrace) -> pl.DataFrame:
    """Compute the self time of each op and call.

    The op that began last, one level up on the same thread, is the one that another is nested in::

        depth 1   |------------ aten::linear ------------|     10 us
        depth 2      |------- aten::addmm -------|              7 us, so linear takes 3 itself
        depth 3            | cudaLaunchKernel |                 4 us, so addmm takes 3 itself

    Args:
        rank: The trace of one rank.

    Returns:
        ``name`` and ``self_ns`` of each.
    """
    columns = ("ts_ns", "dur_ns", "tid", "name")
    spans = pl.concat([rank.ops.select(columns), rank.calls.select(columns)]).with_row_index("row")
    begins = spans.select("row", "tid", at="ts_ns", step=1, order=-pl.col("dur_ns"))
    ends = spans.select("row", "tid", at=pl.col("ts_ns") + pl.col("dur_ns"), step=-1, order=pl.col("dur_ns"))
    marks = pl.concat([begins, ends]).sort("tid", "at", "step", "order")
    opened = marks.with_columns(depth=pl.col("step").cum_sum().over("tid")).filter(pl.col("step") == 1).sort("at")
    around = opened.select("tid", "at", depth=pl.col("depth") + 1, outer="row")
    nested = opened.join_asof(around, on="at", by=["tid", "depth"], check_sortedness=False).drop_nulls("outer")
    inner = nested.join(spans.select("row", "dur_ns"), on="row").group_by("outer").agg(inner_ns=pl.col("dur_ns").sum())
    found = spans.join(inner, left_on="row", right_on="outer", how="left")
    return found.select("name", self_ns=pl.col("dur_ns") - pl.col("inner_ns").fill_null(0))
