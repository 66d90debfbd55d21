"""Slices of the CPU threads of a timeline: steps and other named ranges, modules, ops, and runtime calls."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.export.perfetto.tracks import Lane
from tracekit.graph.nodes import NONE
from tracekit.nested_calls import find_enclosing_calls
from tracekit.program import Program
from tracekit.replay.engine import Timeline
from tracekit.workload.module_paths import MODULE_CALL


@dataclass(frozen=True, slots=True)
class HostClock:
    """Maps recorded times on CPU threads to those of a timeline.

    Known are the starts and ends of calls and marks. Between them a thread's time goes evenly; before the first and
    after the last it goes as recorded.

    Attributes:
        recorded_ns: Recorded times, in order, each thread in a range of its own.
        shown_ns: The same moments in the timeline; of each thread in order too.
        lane: Thread of each moment.
        width_ns: Length of a thread's range.
        starts_ns: Starts of the host nodes in the timeline.
        ends_ns: Ends of the host nodes.
    """

    recorded_ns: Ints
    shown_ns: Ints
    lane: Ints
    width_ns: int
    starts_ns: Ints
    ends_ns: Ints

    def map_starts(self, lane: Ints, at_ns: Ints) -> Ints:
        """Map the starts of spans; one at the same time as a call's belongs behind what ends then."""
        return self._map(lane, at_ns, "right")

    def map_ends(self, lane: Ints, at_ns: Ints) -> Ints:
        """Map the ends of spans; one at the same time as a call's belongs before what starts then."""
        return self._map(lane, at_ns, "left")

    def _map(self, lane: Ints, at_ns: Ints, side: str) -> Ints:
        at = lane * self.width_ns + np.clip(at_ns, 0, self.width_ns - 1)
        place = np.searchsorted(self.recorded_ns, at, side="right" if side == "right" else "left")
        before, after = np.clip(place - 1, 0, None), np.clip(place, None, self.lane.size - 1)
        has_before, has_after = (
            (self.lane[before] == lane) & (place > 0),
            (self.lane[after] == lane) & (place < self.lane.size),
        )
        since, until = at - self.recorded_ns[before], self.recorded_ns[after] - at
        from_before, from_after = self.shown_ns[before] + since, self.shown_ns[after] - until
        stretch = (self.shown_ns[after] - self.shown_ns[before]) / np.maximum(since + until, 1)
        within = self.shown_ns[before] + np.rint(since * stretch).astype(np.int64)
        return np.where(has_before & has_after, within, np.where(has_before, from_before, from_after))


def build_host_clock(program: Program, timeline: Timeline) -> HostClock:
    """Build the clock of a timeline of a program of one rank."""
    nodes, count = program.graph.nodes, program.graph.nodes.n_host
    width = int(nodes.end_ns.max(initial=0)) + 2
    node = np.concatenate([np.arange(count), np.arange(count)])
    is_start = np.repeat([False, True], count)
    recorded = np.concatenate([nodes.end_ns[:count], nodes.start_ns[:count]]) + nodes.lane[node] * width
    shown = np.concatenate([timeline.end_ns[:count], timeline.start_ns[:count]])
    order = np.lexsort((is_start, recorded))
    moments = pl.DataFrame({"lane": nodes.lane[node][order], "shown": shown[order]})
    in_order = moments.select(pl.col("shown").cum_max().over("lane"))["shown"].to_numpy()
    drawn = np.empty(2 * count, np.int64)
    drawn[order] = in_order
    return HostClock(recorded[order], in_order, nodes.lane[node][order], width, drawn[count:], drawn[:count])


RECORDED_NAME = r"^thread -?\d+ \((.+)\)$"
"""How Kineto writes the name of a thread."""
CALL_CATEGORY = "cuda_runtime"
IS_CALL = pl.col("cat") == CALL_CATEGORY


def build_threads(program: Program) -> pl.DataFrame:
    """Build the CPU threads to draw, first those that run the steps.

    Returns:
        ``thread`` (numbered from 1), ``pid``, ``tid``, ``lane`` (null where it makes no call that touches the GPU),
        ``title``.
    """
    trace = program.trace
    tables = (trace.ops, trace.calls, trace.annotations, trace.frames)
    found = pl.concat(table.select("pid", "tid") for table in tables).drop_nulls().unique()
    main = program.steps.select("pid", "tid", is_other=pl.lit(False)).unique()
    ordered = found.join(main, on=["pid", "tid"], how="left").sort(pl.col("is_other").fill_null(True), "pid", "tid")
    named = ordered.join(_find_lanes(program), on=["pid", "tid"], how="left", maintain_order="left").join(
        trace.thread_names.unique(["pid", "tid"]), on=["pid", "tid"], how="left", maintain_order="left"
    )
    name = pl.col("name").str.extract(RECORDED_NAME).fill_null(pl.col("name"))
    title = pl.concat_str(pl.format("CPU thread {}", "tid"), pl.format(" ({})", name).fill_null(""))
    return named.select("pid", "tid", "lane", title=title).with_row_index("thread", offset=1)


def _find_lanes(program: Program) -> pl.DataFrame:
    """Find the lane of each thread that makes calls: ``pid``, ``tid``, ``lane``."""
    nodes = program.graph.nodes
    count = nodes.n_host - nodes.n_marks
    calls = pl.DataFrame({"correlation": nodes.correlation[:count], "lane": nodes.lane[:count]})
    threads = program.trace.calls.select("correlation", "pid", "tid").drop_nulls().unique("correlation", keep="first")
    placed = calls.filter(pl.col("correlation") != NONE).join(threads, on="correlation").unique("lane", keep="first")
    return placed.select("pid", "tid", "lane").unique(["pid", "tid"], keep="first")


def build_thread_slices(lane: Lane, threads: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of all threads, each within the one that encloses it.

    Perfetto drops a slice that ends after the one around it; its end is cut.

    The timeline is of one rank; ``threads`` are from :func:`build_threads`.

    Returns:
        ``cat``, ``name``, ``tid``, ``start_ns``, ``dur_ns``, and ``correlation`` of calls.
    """
    clock = build_host_clock(lane.program, lane.timeline)
    slices = pl.concat(
        [_build_spans(lane, threads, clock), _build_calls(lane, threads, clock)], how="diagonal_relaxed"
    ).with_columns(start=pl.col("start") - lane.origin_ns, end=pl.col("end") - lane.origin_ns)
    inside = slices.filter(pl.col("start") <= lane.end_ns, pl.col("end") >= 0).with_columns(
        pl.col("start", "end").clip(0, lane.end_ns)
    )
    return nest_slices(inside).select(
        "cat",
        "name",
        tid="thread",
        start_ns="start",
        dur_ns=pl.col("end") - pl.col("start"),
        correlation="correlation",
    )


def _build_spans(lane: Lane, threads: pl.DataFrame, clock: HostClock) -> pl.DataFrame:
    """Build the ranges, modules and ops; of a predicted timeline, those of threads whose calls were replayed."""
    trace = lane.program.trace
    modules = trace.frames.filter(pl.col("name").str.contains(MODULE_CALL)).with_columns(
        pl.col("name").str.replace("nn.Module: ", "", literal=True)
    )
    categories = {"user_annotation": trace.annotations, "python_function": modules, "cpu_op": trace.ops}
    recorded = pl.concat(
        table.select("ts_ns", "dur_ns", "name", "pid", "tid", cat=pl.lit(category))
        for category, table in categories.items()
    )
    spans = recorded.join(threads, on=["pid", "tid"], maintain_order="left")
    begin = spans["ts_ns"].to_numpy() - lane.program.graph.nodes.origin_ns
    end = begin + spans["dur_ns"].to_numpy()
    if lane.index:
        spans, replayed = spans.drop_nulls("lane"), spans["lane"].is_not_null().to_numpy()
        number = spans["lane"].to_numpy()
        begin, end = clock.map_starts(number, begin[replayed]), clock.map_ends(number, end[replayed])
    return spans.select("cat", "name", "thread", start=pl.Series(begin), end=pl.Series(np.maximum(begin, end)))


def _build_calls(lane: Lane, threads: pl.DataFrame, clock: HostClock) -> pl.DataFrame:
    """Build the calls that touch the GPU."""
    nodes = lane.program.graph.nodes
    count = nodes.n_host - nodes.n_marks
    calls = pl.DataFrame(
        {
            "name": nodes.names[:count],
            "lane": nodes.lane[:count],
            "correlation": nodes.correlation[:count],
            "start": clock.starts_ns[:count],
            "end": clock.ends_ns[:count],
        }
    )
    placed = calls.join(threads.drop_nulls("lane"), on="lane", maintain_order="left")
    return placed.select("name", "thread", "start", "end", "correlation", cat=pl.lit(CALL_CATEGORY))


def nest_slices(slices: pl.DataFrame) -> pl.DataFrame:
    """Cut the end of each slice that outlasts the one around it, and sort by thread and start."""
    while True:
        ordered = slices.sort("thread", "start", "end", descending=[False, False, True], maintain_order=True)
        start, end = ordered["start"].to_numpy(), ordered["end"].to_numpy()
        outer, _ = find_enclosing_calls(ordered["thread"].cast(pl.Int64).to_numpy(), start, end)
        limit = np.where(outer == NONE, end, end[outer])
        if (end <= limit).all():
            return ordered
        slices = ordered.with_columns(end=pl.Series(np.minimum(end, limit)))
