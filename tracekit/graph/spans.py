"""Stretches of time on CPU threads, such as those of ops of one name, on the clock and the threads of a graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.nodes import NONE, Nodes
from tracekit.trace import RankTrace

LOADS_DATA = r"^enumerate\(Data(Loader|Pipe)\)"
"""What PyTorch calls the wait for the next batch."""


@dataclass(frozen=True, slots=True)
class Spans:
    """What a set of spans covers, by thread.

    All threads lie on one axis, each in a range of its own.

    Attributes:
        count: How many spans there are.
        begin_ns: Begins of what they cover together, in order.
        end_ns: Ends.
        width_ns: Length of a thread's range.
    """

    count: int
    begin_ns: Ints
    end_ns: Ints
    width_ns: int

    def covered_ns(self, lane: Ints, begin_ns: Ints, end_ns: Ints) -> Ints:
        """How much of each stretch of a thread the spans cover."""
        covered: Ints = self._until(lane, end_ns) - self._until(lane, begin_ns)
        return covered

    def contain(self, lane: Ints, at_ns: Ints) -> Bools:
        """Whether each moment of a thread lies in a span."""
        return self.covered_ns(lane, at_ns, at_ns + 1) > 0

    def _until(self, lane: Ints, at_ns: Ints) -> Ints:
        """How much is covered before each moment, over all threads up to its own."""
        if not self.begin_ns.size:
            return np.zeros(at_ns.size, dtype=np.int64)
        at = lane * self.width_ns + np.clip(at_ns, 0, self.width_ns - 1)
        before = np.searchsorted(self.begin_ns, at, side="right") - 1
        length = self.end_ns - self.begin_ns
        within = np.minimum(at, self.end_ns[before]) - self.begin_ns[before]
        done = np.concatenate([[0], np.cumsum(length)])
        return np.where(before < 0, 0, done[before] + within)


def named(ranks: Sequence[RankTrace], nodes: Nodes, kernels: pl.DataFrame, pattern: str) -> Spans:
    """Spans of the ops and annotations that a regular expression finds in a name.

    Args:
        ranks: What each rank recorded.
        nodes: The nodes of their graph.
        kernels: Their kernel table.
        pattern: The regular expression.
    """
    columns = ("ts_ns", "dur_ns", "pid", "tid", "name")
    spans = [pl.concat([rank.ops.select(columns), rank.annotations.select(columns)]) for rank in ranks]
    return of_rows([table.filter(pl.col("name").str.contains(pattern)) for table in spans], ranks, nodes, kernels)


def of_rows(rows: Sequence[pl.DataFrame], ranks: Sequence[RankTrace], nodes: Nodes, kernels: pl.DataFrame) -> Spans:
    """Spans given per rank as ``ts_ns``, ``dur_ns``, ``pid``, ``tid``, but for those on threads that launch nothing."""
    placed = pl.concat(
        _place(table, rank, nodes, kernels, of_rank(kernels, rank)) for table, rank in zip(rows, ranks, strict=True)
    )
    width = int(nodes.end_ns.max(initial=0)) + 2
    lane, begin, end = (placed[column].to_numpy() for column in ("lane", "begin", "end"))
    begin, end = (np.clip(at, 0, width - 1) + lane * width for at in (begin, end))
    return of_intervals(begin, end, width)


def of_intervals(begin_ns: Ints, end_ns: Ints, width_ns: int) -> Spans:
    """Spans given by their places on the axis of all threads, and the length of a thread's range on it."""
    order = np.argsort(begin_ns, kind="stable")
    begin, reached = begin_ns[order], np.maximum.accumulate(end_ns[order])
    first = np.concatenate([[True], begin[1:] > reached[:-1]])[: begin.size]
    last = np.concatenate([first[1:], [True]])[: begin.size]
    return Spans(begin.size, begin[first], reached[last], width_ns)


def of_rank(kernels: pl.DataFrame, rank: RankTrace) -> Bools:
    """Rows of a kernel table that are a rank's; all of them where it holds one rank only."""
    if "rank" not in kernels.columns:
        return np.ones(kernels.height, dtype=np.bool_)
    return (kernels["rank"] == (rank.rank or 0)).to_numpy()


def _place(rows: pl.DataFrame, rank: RankTrace, nodes: Nodes, kernels: pl.DataFrame, mine: Bools) -> pl.DataFrame:
    """``lane``, ``begin`` and ``end`` of a rank's spans; its launches tell its threads' lanes and its clock."""
    launched = mine & (nodes.launcher != NONE)
    call = nodes.launcher[launched]
    calls = rank.calls.select("pid", "tid", "ts_ns")[kernels["call"].filter(pl.Series(launched)).to_list()]
    lanes = calls.select("pid", "tid", lane=pl.Series(nodes.lane[call], dtype=pl.Int64)).unique()
    origin_ns = int(calls["ts_ns"][0] - nodes.start_ns[call[0]]) if call.size else 0
    begin = pl.col("ts_ns") - origin_ns
    return rows.join(lanes, on=["pid", "tid"]).select("lane", begin=begin, end=begin + pl.col("dur_ns"))
