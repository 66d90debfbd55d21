"""Recorded: time spans on CPU threads, such as ops of one name, on the clock and lanes of a graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.nodes import NONE, Nodes
from tracekit.trace import RankTrace

DATA_LOADER_RANGES = r"^enumerate\(Data(Loader|Pipe)\)"
"""PyTorch's name of the wait for the next batch."""


@dataclass(frozen=True, slots=True)
class HostSpans:
    """The union of a set of spans, by thread.

    All threads lie on one axis, each in a range of its own.

    Attributes:
        count: Number of spans.
        begin_ns: Begins of the merged intervals, in order.
        end_ns: Ends of the merged intervals.
        width_ns: Length of a thread's range.
    """

    count: int
    begin_ns: Ints
    end_ns: Ints
    width_ns: int

    def measure_covered_ns(self, lane: Ints, begin_ns: Ints, end_ns: Ints) -> Ints:
        """Measure how much of each interval of a thread the spans cover."""
        covered: Ints = self._measure_until(lane, end_ns) - self._measure_until(lane, begin_ns)
        return covered

    def contain(self, lane: Ints, at_ns: Ints) -> Bools:
        """Return whether each time of a thread lies in a span."""
        return self.measure_covered_ns(lane, at_ns, at_ns + 1) > 0

    def _measure_until(self, lane: Ints, at_ns: Ints) -> Ints:
        """Measure how much is covered before each time, over all threads up to its own."""
        if not self.begin_ns.size:
            return np.zeros(at_ns.size, dtype=np.int64)
        at = lane * self.width_ns + np.clip(at_ns, 0, self.width_ns - 1)
        before = np.searchsorted(self.begin_ns, at, side="right") - 1
        length = self.end_ns - self.begin_ns
        within = np.minimum(at, self.end_ns[before]) - self.begin_ns[before]
        done = np.concatenate([[0], np.cumsum(length)])
        return np.where(before < 0, 0, done[before] + within)


@dataclass(frozen=True, slots=True)
class LaunchThreads:
    """The CPU threads that launch something, on the clock and lanes of a graph.

    Attributes:
        lanes: For each rank its threads: ``pid``, ``tid``, ``lane``.
        origin_ns: For each rank the absolute time of the graph's start.
        width_ns: Length of a thread's range on the axis of all threads.
    """

    lanes: tuple[pl.DataFrame, ...]
    origin_ns: tuple[int, ...]
    width_ns: int


def find_launch_threads(ranks: Sequence[RankTrace], nodes: Nodes, kernels: pl.DataFrame) -> LaunchThreads:
    """Find the threads that launch something; a rank's launches give its lanes and its clock."""
    found = [_find_rank_threads(rank, nodes, kernels, select_rank_rows(kernels, rank)) for rank in ranks]
    lanes, origins = zip(*found, strict=True)
    return LaunchThreads(lanes, origins, int(nodes.end_ns.max(initial=0)) + 2)


def _find_rank_threads(rank: RankTrace, nodes: Nodes, kernels: pl.DataFrame, mine: Bools) -> tuple[pl.DataFrame, int]:
    """Return a rank's threads and the absolute time of the graph's start."""
    launched = mine & (nodes.launcher != NONE)
    call = nodes.launcher[launched]
    calls = rank.calls.select("pid", "tid", "ts_ns")[kernels["call"].filter(pl.Series(launched)).to_list()]
    lanes = calls.select("pid", "tid", lane=pl.Series(nodes.lane[call], dtype=pl.Int64)).unique()
    return lanes, int(calls["ts_ns"][0] - nodes.start_ns[call[0]]) if call.size else 0


def find_spans_by_name(ranks: Sequence[RankTrace], threads: LaunchThreads, pattern: str) -> HostSpans:
    """Find the spans of ops and annotations whose name matches a regular expression."""
    return build_spans(
        [pl.concat(select_by_name(table, pattern) for table in (rank.ops, rank.annotations)) for rank in ranks], threads
    )


def select_by_name(table: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Return ``ts_ns``, ``dur_ns``, ``pid``, ``tid`` of the rows whose name matches a regular expression."""
    return table.filter(pl.col("name").str.contains(pattern)).select("ts_ns", "dur_ns", "pid", "tid")


def build_spans(rows: Sequence[pl.DataFrame], threads: LaunchThreads) -> HostSpans:
    """Build spans from rows per rank (``ts_ns``, ``dur_ns``, ``pid``, ``tid``), but for threads that launch nothing."""
    begin = pl.col("ts_ns")
    placed = pl.concat(
        table.join(lanes, on=["pid", "tid"]).select(
            "lane", begin=begin - origin_ns, end=begin + pl.col("dur_ns") - origin_ns
        )
        for table, lanes, origin_ns in zip(rows, threads.lanes, threads.origin_ns, strict=True)
    )
    width = threads.width_ns
    lane, begins, ends = (placed[column].to_numpy() for column in ("lane", "begin", "end"))
    begins, ends = (np.clip(at, 0, width - 1) + lane * width for at in (begins, ends))
    return merge_intervals(begins, ends, width)


def merge_intervals(begin_ns: Ints, end_ns: Ints, width_ns: int) -> HostSpans:
    """Merge intervals given by their places on the axis of all threads, with ranges of ``width_ns`` per thread."""
    order = np.argsort(begin_ns, kind="stable")
    begin, reached = begin_ns[order], np.maximum.accumulate(end_ns[order])
    first = np.concatenate([[True], begin[1:] > reached[:-1]])[: begin.size]
    last = np.concatenate([first[1:], [True]])[: begin.size]
    return HostSpans(begin.size, begin[first], reached[last], width_ns)


def select_rank_rows(kernels: pl.DataFrame, rank: RankTrace) -> Bools:
    """Return which rows of a kernel table belong to a rank."""
    return (kernels["rank"] == (rank.rank or 0)).to_numpy()
