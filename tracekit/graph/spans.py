"""Stretches of time on CPU threads, such as those of ops of one name, on the clock and the threads of a graph."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.graph.nodes import NONE, Nodes
from tracekit.trace import RankTrace

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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


def named(trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame, pattern: str) -> Spans:
    """Spans of the ops and annotations that a regular expression finds in a name.

    Args:
        trace: The trace.
        nodes: The nodes of its graph.
        kernels: Its kernel table.
        pattern: The regular expression.
    """
    columns = ("ts_ns", "dur_ns", "pid", "tid", "name")
    spans = pl.concat([trace.ops.select(columns), trace.annotations.select(columns)])
    return of_rows(spans.filter(pl.col("name").str.contains(pattern)), trace, nodes, kernels)


def of_rows(rows: pl.DataFrame, trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame) -> Spans:
    """Spans given as ``ts_ns``, ``dur_ns``, ``pid``, ``tid``; those on threads that launch nothing are left out."""
    placed = rows.join(_threads(trace, nodes, kernels), on=["pid", "tid"])
    width = int(nodes.end_ns.max(initial=0)) + 2
    lane = placed["lane"].to_numpy()
    begin = placed["ts_ns"].to_numpy() - nodes.origin_ns
    end = np.clip(begin + placed["dur_ns"].to_numpy(), 0, width - 1) + lane * width
    begin = np.clip(begin, 0, width - 1) + lane * width
    order = np.argsort(begin, kind="stable")
    begin, reached = begin[order], np.maximum.accumulate(end[order])
    first = np.concatenate([[True], begin[1:] > reached[:-1]])[: begin.size]
    last = np.concatenate([first[1:], [True]])[: begin.size]
    return Spans(placed.height, begin[first], reached[last], width)


def _threads(trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame) -> pl.DataFrame:
    """``pid``, ``tid`` and ``lane`` of the threads that launch something."""
    launched = nodes.launcher != NONE
    calls = trace.calls.select("pid", "tid")[kernels["call"].filter(pl.Series(launched)).to_list()]
    return calls.with_columns(lane=pl.Series(nodes.lane[nodes.launcher[launched]], dtype=pl.Int64)).unique()
