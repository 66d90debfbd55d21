"""Find host work with a known purpose: memory allocation and data loading."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.binding_edges import NO_EDGE, BindingPath, get_nodes, get_vertex_times
from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.nodes import ALLOCATION_CALLS
from tracekit.graph.recorded import DATA_LOADER_RANGES, HostSpans, build_spans, select_by_name
from tracekit.kept import keep_on_first
from tracekit.program import Program
from tracekit.replay.engine import Timeline, build_measured_timeline


@dataclass(frozen=True, slots=True)
class HostWork:
    """Host work with a known purpose, on threads that launch something.

    Attributes:
        allocations: Spans in which they allocated or freed memory.
        allocations_and_loading: Spans in which they did so or waited for a batch.
    """

    allocations: HostSpans
    allocations_and_loading: HostSpans


@keep_on_first
def find_host_work(program: Program) -> HostWork:
    """Find the recorded memory allocation and data loading."""
    allocations = [select_by_name(rank, ALLOCATION_CALLS, "calls") for rank in program.ranks]
    loading = [select_by_name(rank, DATA_LOADER_RANGES, "ops", "annotations") for rank in program.ranks]
    either = [pl.concat(both) for both in zip(allocations, loading, strict=True)]
    return HostWork(*(build_spans(rows, program.launch_threads) for rows in (allocations, either)))


class HostWorkMeter:
    """Measures how long the host did some work within the segments of a binding path.

    A replay may have moved or stretched the time between two vertices. The work between them is then stretched evenly.

    Args:
        graph: The dependency graph.
        timeline: Measured or replayed.
        trail: The segments.
    """

    def __init__(self, graph: Graph, timeline: Timeline, trail: BindingPath) -> None:
        times, recorded = get_vertex_times(graph, timeline), get_vertex_times(graph, build_measured_timeline(graph))
        src, dst = graph.src[trail.edge], trail.vertex
        took, took_then = times[dst] - times[src], recorded[dst] - recorded[src]
        self._slower = took / np.maximum(took_then, 1)
        self._lane = graph.nodes.lane[get_nodes(graph, dst)]
        self._begin_ns, self._recorded_begin_ns = times[src], recorded[src]
        self._known = (trail.edge != NO_EDGE) & (took_then > 0)

    def measure_ns(self, work: HostSpans, from_ns: Ints, until_ns: Ints) -> Ints:
        """Measure the work in a part of each segment; 0 for segments without an edge.

        Args:
            work: Spans of this work by thread, as measured.
            from_ns: Start of the part of each segment.
            until_ns: End of the part of each segment.
        """
        length, measured_ns = until_ns - from_ns, np.zeros_like(from_ns)
        rows = np.flatnonzero(self._known & (length > 0)) if work.count else np.zeros(0, dtype=np.int64)
        slower = self._slower[rows]
        begin, end = (
            self._recorded_begin_ns[rows]
            + np.rint((at[rows] - self._begin_ns[rows]) / np.where(slower > 0, slower, 1)).astype(np.int64)
            for at in (from_ns, until_ns)
        )
        covered = work.measure_covered_ns(self._lane[rows], begin, np.maximum(end, begin)) * slower
        measured_ns[rows] = np.clip(np.rint(covered).astype(np.int64), 0, length[rows])
        return measured_ns
