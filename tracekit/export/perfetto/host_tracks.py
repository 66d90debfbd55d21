"""Slices of the CPU threads of a timeline: steps and other named ranges, modules, ops, and runtime calls."""

import numpy as np
import polars as pl

from tracekit.export.perfetto.host_clock import HostClock, build_host_clock
from tracekit.export.perfetto.lane import Lane
from tracekit.graph.nodes import NONE
from tracekit.program import Program
from tracekit.workload.module_paths import MODULE_CALL, find_enclosing_calls

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

    Args:
        lane: The timeline, of one rank.
        threads: As :func:`build_threads` returns them.

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
