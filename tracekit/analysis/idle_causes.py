"""Classify why a GPU or a stream had nothing to run: the cause of every segment of a binding path.

A synchronization delays later host work. Host work after it therefore counts as sync-bound for as long as the
synchronization kept the host from doing this work earlier; the rest counts as launch-bound. Memory allocation and data
loading are separated first::

    host  |- waits 5 us for the GPU -|-- 8 us of work until the next launch --|
    GPU   busy ----------------------|                 idle                   |
    cause                            |- sync-bound 5 -|--- launch-bound 3 ----|
"""

from collections.abc import Iterator
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
from tracekit.analysis.host_work import find_host_work, measure_host_work_ns
from tracekit.arrays import Bools, Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.replay.engine import Timeline
from tracekit.run import MeasuredRun


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
    UNEXPLAINED = "unexplained"


CAUSE_MEANINGS = {
    IdleCause.LAUNCH_BOUND: "the CPU was still working towards the next launch",
    IdleCause.SYNC_BOUND: "the CPU had waited for the GPU before it went on to the next launch",
    IdleCause.ALLOCATOR: "the CPU got or freed memory (cudaMalloc, cudaFree, cudaHostAlloc, ...) "
    "before the next launch",
    IdleCause.DATA_LOADING: "the CPU waited for the next batch of the data loader",
    IdleCause.DEPENDENCY: "the next kernel waited for an event of another stream",
    IdleCause.WAITS_FOR_COMPUTE: "the stream's next kernel waited for a kernel of another stream",
    IdleCause.WAITS_FOR_COPY: "the stream's next kernel waited for a copy of another stream",
    IdleCause.WAITS_FOR_COMMUNICATION: "the stream's next kernel waited for a collective of another stream",
    IdleCause.RENDEZVOUS: "a collective waited for other ranks, and nothing else ran",
    IdleCause.LAUNCH_LATENCY: "from the launch call to the start of its kernel",
    IdleCause.KERNEL_GAP: "between two kernels that were both in the queue",
    IdleCause.IN_GRAPH: "within a CUDA graph: work or waits that come back in every replay but are not recorded",
    IdleCause.NOTHING_LAUNCHED: "nothing more was launched on the stream",
    IdleCause.UNEXPLAINED: "nothing in the trace says what the next kernel waited for",
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
}


def classify_idle_segments(
    run: MeasuredRun, timeline: Timeline, stretches: TimeRanges, trail: BindingPath
) -> pl.DataFrame:
    """Classify each segment: return its ``cause`` and how much of its time has another cause.

    Args:
        run: The run.
        timeline: A timeline of the run's graph, measured or replayed.
        stretches: The idle time ranges.
        trail: Their segments.

    Returns:
        ``cause``, ``time_ns``, and the time split off from it in nanoseconds: ``sync_bound``, ``allocator``,
        ``data_loading``.
    """
    graph, work = run.graph, find_host_work(run)
    node = get_nodes(graph, trail.vertex)
    cause = _classify_by_edge(graph, trail, run.kernels, node)
    until = _compute_sync_blame_end(graph, timeline, stretches, trail, node)
    by_cpu = (cause == IdleCause.LAUNCH_BOUND).to_numpy()
    cpu_end = np.where(by_cpu, trail.end_ns, trail.begin_ns)
    blamed_end = np.clip(until, trail.begin_ns, cpu_end)
    allocator_ns = measure_host_work_ns(graph, timeline, trail, work.allocations, trail.begin_ns, cpu_end)
    named_ns = np.maximum(
        measure_host_work_ns(graph, timeline, trail, work.allocations_and_loading, trail.begin_ns, cpu_end),
        allocator_ns,
    )
    named_of_blamed_ns = measure_host_work_ns(
        graph, timeline, trail, work.allocations_and_loading, trail.begin_ns, blamed_end
    )
    other_ns = cpu_end - trail.begin_ns - named_ns
    sync_ns = np.clip(blamed_end - trail.begin_ns - named_of_blamed_ns, 0, other_ns)
    return pl.DataFrame(
        {
            "cause": cause,
            "time_ns": trail.dur_ns - sync_ns - named_ns,
            str(IdleCause.SYNC_BOUND): sync_ns,
            str(IdleCause.ALLOCATOR): allocator_ns,
            str(IdleCause.DATA_LOADING): named_ns - allocator_ns,
        }
    )


def _classify_by_edge(graph: Graph, trail: BindingPath, kernels: pl.DataFrame, node: Ints) -> pl.Series:
    """Classify each segment by its binding edge."""
    names = {int(k): str(c) for k, c in _CAUSE_BY_EDGE_KIND.items()} | {NO_EDGE: str(IdleCause.UNEXPLAINED)}
    launched = pl.Series(graph.nodes.launcher[np.maximum(node - graph.nodes.n_host, 0)] != NONE)
    far = pl.Series(find_long_stream_gaps(graph, trail))
    cause = (
        pl.Series("cause", get_edge_kinds(graph, trail))
        .replace_strict(names, return_dtype=pl.String)
        .set(far & launched, str(IdleCause.IN_GRAPH))
        .set(far & ~launched, str(IdleCause.UNEXPLAINED))
    )
    for name, rows in _find_gpu_waits(graph, trail, kernels, node):
        cause = cause.set(pl.Series(rows), str(name))
    return cause


def _find_gpu_waits(
    graph: Graph, trail: BindingPath, kernels: pl.DataFrame, node: Ints
) -> Iterator[tuple[IdleCause, Bools]]:
    """Find the segments in which another stream worked, or another rank had not yet arrived."""
    cpu, kind = graph.nodes.n_host, get_edge_kinds(graph, trail)
    runs = (node >= cpu) & np.isin(kind, (EdgeKind.RUN, EdgeKind.RENDEZVOUS))
    through_cpu = _is_reached_through(trail, node < cpu)
    row = np.maximum(node - cpu, 0)
    families = kernels.select(
        communication=pl.col("family") == "collective", copy=pl.col("kind") != "kernel"
    ).with_columns(compute=~pl.any_horizontal(pl.all()))
    for name, cause in (
        ("compute", IdleCause.WAITS_FOR_COMPUTE),
        ("copy", IdleCause.WAITS_FOR_COPY),
        ("communication", IdleCause.WAITS_FOR_COMMUNICATION),
    ):
        yield cause, runs & ~through_cpu & families[name].to_numpy()[row]
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
    waits = np.flatnonzero(np.isin(get_edge_kinds(graph, trail), (EdgeKind.SYNC, EdgeKind.QUEUE)))
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


def to_long_table(labelled: pl.DataFrame) -> pl.DataFrame:
    """Convert the classified segments to one row per segment and cause, without empty rows."""
    columns = ("window", "kernel", "cause", "time_ns")
    others = (IdleCause.SYNC_BOUND, IdleCause.ALLOCATOR, IdleCause.DATA_LOADING)
    parts = [labelled.with_columns(cause=pl.lit(str(cause)), time_ns=str(cause)).select(columns) for cause in others]
    return pl.concat([labelled.select(columns), *parts]).filter(pl.col("time_ns") > 0)
