"""Find host work with a known purpose: memory allocation and data loading."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.binding_edges import NO_EDGE, BindingPath, get_nodes, get_vertex_times
from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.blocking_calls import ALLOCATION_CALLS
from tracekit.graph.recorded import host_spans
from tracekit.graph.recorded.host_spans import DATA_LOADER_RANGES, HostSpans
from tracekit.replay.engine import Timeline, build_measured_timeline
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class HostWork:
    """Host work with a known purpose, on threads that launch something.

    Attributes:
        allocations: Spans in which they allocated or freed memory.
        allocations_and_loading: Spans in which they did so or waited for a batch.
    """

    allocations: HostSpans
    allocations_and_loading: HostSpans


def find_host_work(run: MeasuredRun) -> HostWork:
    """Find the recorded memory allocation and data loading."""
    allocations = [_select_by_name(rank.calls, ALLOCATION_CALLS) for rank in run.ranks]
    loading = [
        pl.concat([_select_by_name(table, DATA_LOADER_RANGES) for table in (rank.ops, rank.annotations)])
        for rank in run.ranks
    ]
    either = [pl.concat(both) for both in zip(allocations, loading, strict=True)]
    return HostWork(
        *(host_spans.build_spans(rows, run.ranks, run.graph.nodes, run.kernels) for rows in (allocations, either))
    )


def _select_by_name(table: pl.DataFrame, pattern: str) -> pl.DataFrame:
    return table.filter(pl.col("name").str.contains(pattern)).select("ts_ns", "dur_ns", "pid", "tid")


def measure_host_work_ns(
    graph: Graph, timeline: Timeline, trail: BindingPath, work: HostSpans, from_ns: Ints, until_ns: Ints
) -> Ints:
    """Measure how long the host did some work within a part of each segment; 0 for segments without an edge.

    A replay may have moved or stretched the time between two vertices. The work between them is then stretched evenly.

    Args:
        graph: The dependency graph.
        timeline: Measured or replayed.
        trail: The segments.
        work: Spans of this work by thread, as measured.
        from_ns: Start of the part of each segment.
        until_ns: End of the part of each segment.
    """
    times, recorded = get_vertex_times(graph, timeline), get_vertex_times(graph, build_measured_timeline(graph))
    src, dst = graph.src[trail.edge], trail.vertex
    took, took_then = times[dst] - times[src], recorded[dst] - recorded[src]
    slower = took / np.maximum(took_then, 1)
    lane = graph.nodes.lane[get_nodes(graph, dst)]
    begin, end = (
        recorded[src] + np.rint((at - times[src]) / np.where(slower > 0, slower, 1)).astype(np.int64)
        for at in (from_ns, until_ns)
    )
    covered = np.rint(work.measure_covered_ns(lane, begin, np.maximum(end, begin)) * slower).astype(np.int64)
    known = (trail.edge != NO_EDGE) & (took_then > 0)
    return np.where(known, np.clip(covered, 0, np.maximum(until_ns - from_ns, 0)), 0)
