"""Work of the CPU that has a name of its own: getting memory, and getting the next batch."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph, spans
from tracekit.graph.calls import ALLOCATES
from tracekit.graph.spans import LOADS_DATA, Spans
from tracekit.replay.engine import Timeline, measured
from tracekit.replay.run import Run
from tracekit.replay.trail import NO_EDGE, Trail, nodes_of, vertex_times


@dataclass(frozen=True, slots=True)
class HostWork:
    """When the threads that launch something did work with a name.

    Attributes:
        allocations: When they got or freed memory.
        all: When they did that or waited for a batch.
    """

    allocations: Spans
    all: Spans


def host_work(run: Run) -> HostWork:
    """Work with a name that was recorded."""
    allocations = [_named(rank.calls, ALLOCATES) for rank in run.ranks]
    loading = [pl.concat([_named(table, LOADS_DATA) for table in (rank.ops, rank.annotations)]) for rank in run.ranks]
    either = [pl.concat(both) for both in zip(allocations, loading, strict=True)]
    return HostWork(*(spans.of_rows(rows, run.ranks, run.graph.nodes, run.kernels) for rows in (allocations, either)))


def _named(table: pl.DataFrame, pattern: str) -> pl.DataFrame:
    return table.filter(pl.col("name").str.contains(pattern)).select("ts_ns", "dur_ns", "pid", "tid")


def within_ns(graph: Graph, timeline: Timeline, trail: Trail, work: Spans, from_ns: Ints, until_ns: Ints) -> Ints:
    """How much of a part of each piece the CPU spent in some work; 0 where no edge holds the piece.

    A replay may have moved or stretched what lies between two moments; it is then taken to be stretched evenly.

    Args:
        graph: The dependency graph.
        timeline: Measured or replayed.
        trail: The pieces.
        work: When each thread did this work, as measured.
        from_ns: Where the part of each piece begins.
        until_ns: Where it ends.
    """
    times, recorded = vertex_times(graph, timeline), vertex_times(graph, measured(graph))
    src, dst = graph.src[trail.edge], trail.vertex
    took, took_then = times[dst] - times[src], recorded[dst] - recorded[src]
    slower = took / np.maximum(took_then, 1)
    lane = graph.nodes.lane[nodes_of(graph, dst)]
    begin, end = (
        recorded[src] + np.rint((at - times[src]) / np.where(slower > 0, slower, 1)).astype(np.int64)
        for at in (from_ns, until_ns)
    )
    covered = np.rint(work.covered_ns(lane, begin, np.maximum(end, begin)) * slower).astype(np.int64)
    known = (trail.edge != NO_EDGE) & (took_then > 0)
    return np.where(known, np.clip(covered, 0, np.maximum(until_ns - from_ns, 0)), 0)
