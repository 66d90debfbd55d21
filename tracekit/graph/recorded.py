"""What the trace records of waits and of CPU threads: waits of CUPTI, and spans such as ops of one name.

CUPTI's cuda_sync events say who waited for what. CUDA semantics: an event stands for the work that its stream had been
given when the event was recorded, so for the last activity launched there before the record. A stream that waits delays
the next activity launched on it. A call that waits returns after the activity.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.nodes import EMPTY_NODES, EVENT_SYNC_CALLS, NONE, STREAM_SYNC_CALLS, Nodes
from tracekit.trace import RankTrace

# If the awaited activity ends later than this after its waiter started, the pair is wrong.
MAX_OVERLAP_NS = 500


@dataclass(frozen=True, slots=True)
class RecordedWaits:
    """Recorded waits, resolved to nodes.

    Attributes:
        signaller: Activities that another stream waited for.
        waiter: First activity delayed by each.
        awaited: Activities that a host call waited for.
        call: That call, a host node.
        known_calls: All calls whose wait is recorded, including those that had nothing left to wait for.
    """

    signaller: Ints
    waiter: Ints
    awaited: Ints
    call: Ints
    known_calls: Ints


def find_recorded_waits(trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame) -> RecordedWaits:
    """Find the waits that the trace records.

    A trace of several GPUs gives none: the records do not say which GPU's stream is meant.
    """
    if not trace.syncs.height or kernels["device"].n_unique() != 1:
        return RecordedWaits(*[EMPTY_NODES] * 5)
    launched = _list_launched(nodes, kernels)
    times = trace.calls.select("correlation", at=pl.col("ts_ns") - nodes.origin_ns).unique("correlation", keep="first")
    records = times.rename({"correlation": "wait_on_record", "at": "recorded_at"})
    syncs = trace.syncs.join(times, on="correlation").join(records, on="wait_on_record", how="left")
    giver, waiter = _resolve_stream_waits(nodes, launched, syncs.filter(pl.col("name") == "Stream Wait Event"))
    awaited, call, known = _resolve_call_waits(nodes, launched, syncs)
    return RecordedWaits(giver, waiter, awaited, call, known)


def _list_launched(nodes: Nodes, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return launched activities as ``stream``, ``at`` (start of the launch), ``node``, in order of launch."""
    table = pl.DataFrame(
        {
            "stream": kernels["stream"],
            "at": nodes.launch_start_ns,
            "start": nodes.start_ns[nodes.n_host :],
            "node": nodes.activities,
        }
    )
    return table.filter(pl.Series(nodes.launcher != NONE)).sort("at", "start").drop("start")


def _resolve_stream_waits(nodes: Nodes, launched: pl.DataFrame, waits: pl.DataFrame) -> tuple[Ints, Ints]:
    """Return signallers and waiters of the streams' waits for events."""
    pairs = (
        waits.drop_nulls("recorded_at")
        .sort("recorded_at")
        .join_asof(
            launched.rename({"node": "giver", "stream": "wait_on_stream", "at": "recorded_at"}),
            on="recorded_at",
            by="wait_on_stream",
            check_sortedness=False,
        )
        .sort("at")
        .join_asof(
            launched.rename({"node": "waiter"}), on="at", by="stream", strategy="forward", check_sortedness=False
        )
        .select("giver", "waiter")
        .drop_nulls()
        .unique(maintain_order=True)
    )
    giver, waiter = pairs["giver"].to_numpy(), pairs["waiter"].to_numpy()
    possible = (nodes.lane[giver] != nodes.lane[waiter]) & (
        nodes.end_ns[giver] <= nodes.start_ns[waiter] + MAX_OVERLAP_NS
    )
    return giver[possible], waiter[possible]


def _resolve_call_waits(nodes: Nodes, launched: pl.DataFrame, syncs: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Return activities and calls of the host's waits for streams and events, and all calls with a resolved wait."""
    calls = pl.DataFrame({"correlation": nodes.correlation, "name": nodes.names}).with_row_index("call")
    blocking = calls.filter(pl.col("name").str.contains(f"{EVENT_SYNC_CALLS}|{STREAM_SYNC_CALLS}")).drop("name")
    of_event = (pl.col("name") == "Event Sync") & pl.col("recorded_at").is_not_null()
    of_stream = pl.col("name") == "Stream Sync"
    waits = syncs.filter(of_event | of_stream).select(
        "correlation",
        until=pl.when(of_event).then("recorded_at").otherwise("at"),
        stream=pl.when(of_event).then("wait_on_stream").otherwise("stream"),
    )
    joined = (
        waits.join(blocking, on="correlation")
        .sort("until")
        .join_asof(launched.rename({"at": "until"}), on="until", by="stream", check_sortedness=False)
    )
    found = joined.drop_nulls("node")
    activity, call, known = (
        column.cast(pl.Int64).to_numpy() for column in (found["node"], found["call"], joined["call"])
    )
    return activity, call, known


SPAN_COLUMNS = ["ts_ns", "dur_ns", "pid", "tid"]
DATA_LOADER_RANGES = r"^enumerate\(Data(Loader|Pipe)\)"
"""PyTorch's name of the wait for the next batch."""


@dataclass(frozen=True, slots=True)
class HostSpans:
    """The union of a set of spans, by thread.

    All threads lie on one axis, each in a range of its own.

    Attributes:
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
    calls = rank.calls[["pid", "tid", "ts_ns"]][kernels["call"].filter(pl.Series(launched)).to_list()]
    lanes = calls.select("pid", "tid", lane=pl.Series(nodes.lane[call], dtype=pl.Int64)).unique()
    return lanes, int(calls["ts_ns"][0] - nodes.start_ns[call[0]]) if call.size else 0


def find_spans_by_name(ranks: Sequence[RankTrace], threads: LaunchThreads, pattern: str) -> HostSpans:
    """Find the spans of ops and annotations whose name matches a regular expression."""
    return build_spans([select_by_name(rank, pattern, "ops", "annotations") for rank in ranks], threads)


def select_by_name(rank: RankTrace, pattern: str, *tables: str) -> pl.DataFrame:
    """Return ``ts_ns``, ``dur_ns``, ``pid``, ``tid`` of the rows of some tables whose name a pattern finds."""
    return pl.concat(rank.tables[name][SPAN_COLUMNS][rank.find_named(name, pattern)] for name in tables)


def build_spans(rows: Sequence[pl.DataFrame], threads: LaunchThreads) -> HostSpans:
    """Build spans from rows per rank (``ts_ns``, ``dur_ns``, ``pid``, ``tid``), but for threads that launch nothing."""
    width = threads.width_ns
    if not any(table.height for table in rows):
        return HostSpans(0, EMPTY_NODES, EMPTY_NODES, width)
    begin = pl.col("ts_ns")
    placed = pl.concat(
        table.join(lanes, on=["pid", "tid"]).select(
            "lane", begin=begin - origin_ns, end=begin + pl.col("dur_ns") - origin_ns
        )
        for table, lanes, origin_ns in zip(rows, threads.lanes, threads.origin_ns, strict=True)
    )
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
