"""Classify why a GPU or a stream had nothing to run: the cause of every segment of a binding path.

A synchronization delays later host work. Host work after it therefore counts as sync-bound for as long as the
synchronization kept the host from doing this work earlier; the rest counts as launch-bound. Memory allocation and data
loading are separated first::

    host  |- waits 5 us for the GPU -|-- 8 us of work until the next launch --|
    GPU   busy ----------------------|                 idle                   |
    cause                            |- sync-bound 5 -|--- launch-bound 3 ----|
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from tracekit.analysis.binding_edges import (
    NO_EDGE,
    BindingPath,
    TimeRanges,
    find_long_stream_gaps,
    get_edge_kinds,
    get_nodes,
    get_vertex_times,
)
from tracekit.arrays import Bools, Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import ALLOCATION_CALLS, NONE
from tracekit.graph.recorded import DATA_LOADER_RANGES, HostSpans, build_spans, select_by_name
from tracekit.kept import keep_on_first
from tracekit.messages import Message
from tracekit.messages import findings as told
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
        timeline: Measured or replayed.
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

        ``work`` has spans by thread, as measured; the part of each segment lies between ``from_ns`` and ``until_ns``.
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


class IdleCause(StrEnum):
    """Cause of a GPU's idle time."""

    LAUNCH_BOUND = "launch_bound"
    SYNC_BOUND = "sync_bound"
    ALLOCATOR = "allocator"
    DATA_LOADING = "data_loading"
    DEPENDENCY = "dependency"
    WAITS_FOR_COMPUTE = "waits_for_compute"
    WAITS_FOR_COPY = "waits_for_copy"
    WAITS_FOR_COMMUNICATION = "waits_for_communication"
    RENDEZVOUS = "rendezvous"
    LAUNCH_LATENCY = "launch_latency"
    KERNEL_GAP = "kernel_gap"
    IN_GRAPH = "in_graph"
    NOTHING_LAUNCHED = "nothing_launched"
    UNRECORDED = "unrecorded"
    UNEXPLAINED = "unexplained"


CAUSE_MEANINGS: dict[IdleCause, Message] = {
    IdleCause.LAUNCH_BOUND: told.IDLE_LAUNCH_BOUND(),
    IdleCause.SYNC_BOUND: told.IDLE_SYNC_BOUND(),
    IdleCause.ALLOCATOR: told.IDLE_ALLOCATOR(),
    IdleCause.DATA_LOADING: told.IDLE_DATA_LOADING(),
    IdleCause.DEPENDENCY: told.IDLE_DEPENDENCY(),
    IdleCause.WAITS_FOR_COMPUTE: told.IDLE_WAITS_FOR_COMPUTE(),
    IdleCause.WAITS_FOR_COPY: told.IDLE_WAITS_FOR_COPY(),
    IdleCause.WAITS_FOR_COMMUNICATION: told.IDLE_WAITS_FOR_COMMUNICATION(),
    IdleCause.RENDEZVOUS: told.IDLE_RENDEZVOUS(),
    IdleCause.LAUNCH_LATENCY: told.IDLE_LAUNCH_LATENCY(),
    IdleCause.KERNEL_GAP: told.IDLE_KERNEL_GAP(),
    IdleCause.IN_GRAPH: told.IDLE_IN_GRAPH(),
    IdleCause.NOTHING_LAUNCHED: told.IDLE_NOTHING_LAUNCHED(),
    IdleCause.UNRECORDED: told.IDLE_UNRECORDED_WORK(),
    IdleCause.UNEXPLAINED: told.IDLE_NOTHING_RECORDED(),
}

_CAUSE_BY_EDGE_KIND = {
    EdgeKind.RUN: IdleCause.LAUNCH_BOUND,
    EdgeKind.PROGRAM: IdleCause.LAUNCH_BOUND,
    EdgeKind.HANDOVER: IdleCause.LAUNCH_BOUND,
    EdgeKind.LAUNCH: IdleCause.LAUNCH_LATENCY,
    EdgeKind.STREAM: IdleCause.KERNEL_GAP,
    EdgeKind.EVENT: IdleCause.DEPENDENCY,
    EdgeKind.SYNC: IdleCause.SYNC_BOUND,
    EdgeKind.QUEUE: IdleCause.SYNC_BOUND,
    EdgeKind.RENDEZVOUS: IdleCause.RENDEZVOUS,
    EdgeKind.OCCUPIED: IdleCause.DEPENDENCY,
    EdgeKind.STALL: IdleCause.UNEXPLAINED,
    EdgeKind.UNRECORDED: IdleCause.UNRECORDED,
}
CAUSES = tuple(IdleCause)
CAUSE_CODES = {cause: code for code, cause in enumerate(CAUSES)}
_CAUSE_CODE_BY_EDGE_KIND = np.array(
    [CAUSE_CODES[_CAUSE_BY_EDGE_KIND[kind]] for kind in EdgeKind] + [CAUSE_CODES[IdleCause.UNEXPLAINED]]
)
"""By kind of edge; the last entry, which ``NO_EDGE`` selects, is for segments without an edge."""


@dataclass(frozen=True, slots=True)
class IdlePieces:
    """Idle time by cause: one row per time range and cause, without empty rows.

    Attributes:
        range_index: The idle time range of each piece.
        cause: Its cause, as a position in ``CAUSES``.
    """

    range_index: Ints
    cause: Ints
    time_ns: Ints

    def select_ranges(self, first: int, end: int) -> "IdlePieces":
        """Return the pieces of the time ranges from ``first`` to before ``end``, whose numbers then begin at 0."""
        rows = (self.range_index >= first) & (self.range_index < end)
        return IdlePieces(self.range_index[rows] - first, self.cause[rows], self.time_ns[rows])


def classify_idle_segments(
    program: Program, timeline: Timeline, stretches: TimeRanges, trail: BindingPath
) -> IdlePieces:
    """Classify each segment, split off the part of its time that has another cause, and sum by time range.

    ``timeline`` is one of the program's graph, measured or replayed; ``trail`` has the segments of the idle time ranges
    ``stretches``.
    """
    graph, work = program.graph, find_host_work(program)
    node = get_nodes(graph, trail.vertex)
    cause = _classify_by_edge(graph, trail, program.kernels, node)
    until = _compute_sync_blame_end(graph, timeline, stretches, trail, node)
    cpu_end = np.where(cause == CAUSE_CODES[IdleCause.LAUNCH_BOUND], trail.end_ns, trail.begin_ns)
    blamed_end = np.clip(until, trail.begin_ns, cpu_end)
    meter = HostWorkMeter(graph, timeline, trail)
    allocator_ns = meter.measure_ns(work.allocations, trail.begin_ns, cpu_end)
    named_ns = np.maximum(meter.measure_ns(work.allocations_and_loading, trail.begin_ns, cpu_end), allocator_ns)
    named_of_blamed_ns = meter.measure_ns(work.allocations_and_loading, trail.begin_ns, blamed_end)
    other_ns = cpu_end - trail.begin_ns - named_ns
    sync_ns = np.clip(blamed_end - trail.begin_ns - named_of_blamed_ns, 0, other_ns)
    parts = {
        IdleCause.SYNC_BOUND: sync_ns,
        IdleCause.ALLOCATOR: allocator_ns,
        IdleCause.DATA_LOADING: named_ns - allocator_ns,
    }
    causes = np.concatenate([cause, *(np.full_like(cause, CAUSE_CODES[name]) for name in parts)])
    times_ns = np.concatenate([trail.dur_ns - sync_ns - named_ns, *parts.values()])
    key = np.tile(trail.range_index * len(CAUSES), 1 + len(parts)) + causes
    summed = np.zeros(stretches.vertex.size * len(CAUSES), dtype=np.int64)
    np.add.at(summed, key, np.maximum(times_ns, 0))
    there = np.flatnonzero(summed)
    return IdlePieces(there // len(CAUSES), there % len(CAUSES), summed[there])


def _classify_by_edge(graph: Graph, trail: BindingPath, kernels: pl.DataFrame, node: Ints) -> Ints:
    """Classify each segment by its binding edge; return positions in ``CAUSES``."""
    launched = graph.nodes.launcher[np.maximum(node - graph.nodes.n_host, 0)] != NONE
    cause = _CAUSE_CODE_BY_EDGE_KIND[get_edge_kinds(graph, trail)]
    far = find_long_stream_gaps(graph, trail)
    cause[far & launched] = CAUSE_CODES[IdleCause.IN_GRAPH]
    cause[far & ~launched] = CAUSE_CODES[IdleCause.UNEXPLAINED]
    for name, rows in _find_gpu_waits(graph, trail, kernels, node):
        cause[rows] = CAUSE_CODES[name]
    return cause


def _find_gpu_waits(
    graph: Graph, trail: BindingPath, kernels: pl.DataFrame, node: Ints
) -> Iterator[tuple[IdleCause, Bools]]:
    """Find the segments in which another stream worked, or another rank had not yet arrived."""
    cpu, kind = graph.nodes.n_host, get_edge_kinds(graph, trail)
    runs = (node >= cpu) & ((kind == EdgeKind.RUN) | (kind == EdgeKind.RENDEZVOUS))
    through_cpu = _is_reached_through(trail, node < cpu)
    row = np.maximum(node - cpu, 0)
    communication = (kernels["family"] == "collective").to_numpy()
    copy, there = (kernels["kind"] != "kernel").to_numpy(), runs & ~through_cpu
    compute = ~(communication | copy)
    yield IdleCause.WAITS_FOR_COMPUTE, there & compute[row]
    yield IdleCause.WAITS_FOR_COPY, there & copy[row]
    yield IdleCause.WAITS_FOR_COMMUNICATION, there & communication[row]
    yield IdleCause.SYNC_BOUND, runs & through_cpu
    rank = kernels["rank"].to_numpy()
    giver = get_nodes(graph, graph.src[trail.edge]) - cpu
    abroad = (kind == EdgeKind.RENDEZVOUS) & (giver >= 0) & (rank[np.maximum(giver, 0)] != rank[row])
    yield IdleCause.RENDEZVOUS, _is_reached_through(trail, abroad)


def _is_reached_through(trail: BindingPath, rows: Bools) -> Bools:
    """Return the segments whose path, walked back from the end of their time range, passes through one of ``rows``."""
    place = np.arange(rows.size)
    last = np.maximum.accumulate(np.where(rows, place, NONE))
    before = np.concatenate([[NONE], last])[:-1]
    reached: Bools = (before != NONE) & (trail.range_index[before] == trail.range_index)
    return reached


def _compute_sync_blame_end(
    graph: Graph, timeline: Timeline, stretches: TimeRanges, trail: BindingPath, node: Ints
) -> Ints:
    """Compute, for each segment, until when the host is late because of its last synchronization.

    The host is late for as long as it waited. Waiting inside the idle time range is already counted as sync-bound and
    is subtracted.
    """
    kind = get_edge_kinds(graph, trail)
    is_wait = np.isin(kind, (EdgeKind.SYNC, EdgeKind.QUEUE, EdgeKind.UNRECORDED))
    waits = np.flatnonzero(is_wait & (node < graph.nodes.n_host))
    call, node_end = node[waits], trail.vertex[waits]
    own = np.zeros(graph.vertex.size, dtype=np.int64)
    run = graph.kind == EdgeKind.RUN
    own[graph.dst[run]] = timeline.lag_ns[run]
    called_ns = timeline.start_ns[call]
    waited = get_vertex_times(graph, timeline)[node_end] - called_ns - own[node_end]
    seen = trail.begin_ns[waits] - np.maximum(called_ns, stretches.begin_ns[trail.range_index[waits]])
    until = trail.begin_ns[waits] + np.maximum(waited - np.maximum(seen, 0), 0)
    before = np.searchsorted(waits, np.arange(trail.range_index.size))
    known = before < waits.size
    before = np.where(known, before, 0)
    mine = known & (trail.range_index[waits[before]] == trail.range_index) if waits.size else known
    blamed: Ints = np.where(mine, until[before] if waits.size else 0, stretches.begin_ns[trail.range_index])
    return blamed
