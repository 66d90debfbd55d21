"""Why a GPU, or one of its streams, had nothing to run: the pieces of a trail by cause.

A synchronisation is to blame for as much of the work of the CPU after it as it kept the CPU from doing earlier; the
rest of that work is the CPU's own slowness. Getting memory and getting a batch are told apart first.
"""

from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.replay.engine import Timeline
from tracekit.replay.host_work import host_work, within_ns
from tracekit.replay.run import Run
from tracekit.replay.trail import NO_EDGE, Stretches, Trail, far_apart, kinds, nodes_of, vertex_times


class Cause(StrEnum):
    """Why the GPU had nothing to run."""

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


MEANING = {
    Cause.LAUNCH_BOUND: "the CPU was still working towards the next launch",
    Cause.SYNC_BOUND: "the CPU had waited for the GPU before it went on to the next launch",
    Cause.ALLOCATOR: "the CPU got or freed memory (cudaMalloc, cudaFree, cudaHostAlloc, ...) before the next launch",
    Cause.DATA_LOADING: "the CPU waited for the next batch of the data loader",
    Cause.DEPENDENCY: "the next kernel waited for an event of another stream",
    Cause.WAITS_FOR_COMPUTE: "the stream's next kernel waited for a kernel of another stream",
    Cause.WAITS_FOR_COPY: "the stream's next kernel waited for a copy of another stream",
    Cause.WAITS_FOR_COMMUNICATION: "the stream's next kernel waited for a collective of another stream",
    Cause.RENDEZVOUS: "a collective waited for other ranks, and nothing else ran",
    Cause.LAUNCH_LATENCY: "from the launch call to the start of its kernel",
    Cause.KERNEL_GAP: "between two kernels that were both in the queue",
    Cause.IN_GRAPH: "within a CUDA graph: work or waits that come back in every replay but are not recorded",
    Cause.NOTHING_LAUNCHED: "nothing more was launched on the stream",
    Cause.UNEXPLAINED: "nothing in the trace says what the next kernel waited for",
}

_CAUSE = {
    EdgeKind.RUN: Cause.LAUNCH_BOUND,
    EdgeKind.PROGRAM: Cause.LAUNCH_BOUND,
    EdgeKind.HANDOVER: Cause.LAUNCH_BOUND,
    EdgeKind.LAUNCH: Cause.LAUNCH_LATENCY,
    EdgeKind.STREAM: Cause.KERNEL_GAP,
    EdgeKind.EVENT: Cause.DEPENDENCY,
    EdgeKind.SYNC: Cause.SYNC_BOUND,
    EdgeKind.QUEUE: Cause.SYNC_BOUND,
    EdgeKind.RENDEZVOUS: Cause.RENDEZVOUS,
    EdgeKind.OCCUPIED: Cause.DEPENDENCY,
    EdgeKind.STALL: Cause.UNEXPLAINED,
}


def label(run: Run, timeline: Timeline, stretches: Stretches, trail: Trail) -> pl.DataFrame:
    """Per piece its ``cause``, and how long it lasts for that and other reasons.

    Args:
        run: The run.
        timeline: Of its graph, measured or replayed.
        stretches: The idle stretches.
        trail: Their pieces.

    Returns:
        ``cause``, ``time_ns``, and what isn't in it: ``sync_bound``, ``allocator``, ``data_loading``, in nanoseconds.
    """
    graph, work = run.graph, host_work(run)
    node = nodes_of(graph, trail.vertex)
    cause = _causes(graph, trail, run.kernels, node)
    until = _blamed_until(graph, timeline, stretches, trail, node)
    by_cpu = (cause == Cause.LAUNCH_BOUND).to_numpy()
    cpu_end = np.where(by_cpu, trail.end_ns, trail.begin_ns)
    blamed_end = np.clip(until, trail.begin_ns, cpu_end)
    allocator_ns = within_ns(graph, timeline, trail, work.allocations, trail.begin_ns, cpu_end)
    named_ns = np.maximum(within_ns(graph, timeline, trail, work.all, trail.begin_ns, cpu_end), allocator_ns)
    named_of_blamed_ns = within_ns(graph, timeline, trail, work.all, trail.begin_ns, blamed_end)
    other_ns = cpu_end - trail.begin_ns - named_ns
    sync_ns = np.clip(blamed_end - trail.begin_ns - named_of_blamed_ns, 0, other_ns)
    return pl.DataFrame(
        {
            "cause": cause,
            "time_ns": trail.dur_ns - sync_ns - named_ns,
            str(Cause.SYNC_BOUND): sync_ns,
            str(Cause.ALLOCATOR): allocator_ns,
            str(Cause.DATA_LOADING): named_ns - allocator_ns,
        }
    )


def _causes(graph: Graph, trail: Trail, kernels: pl.DataFrame, node: Ints) -> pl.Series:
    """The cause of each piece, by the edge that holds it."""
    names = {int(k): str(c) for k, c in _CAUSE.items()} | {NO_EDGE: str(Cause.UNEXPLAINED)}
    launched = pl.Series(graph.nodes.launcher[np.maximum(node - graph.nodes.cpu, 0)] != NONE)
    far = pl.Series(far_apart(graph, trail))
    cause = (
        pl.Series("cause", kinds(graph, trail))
        .replace_strict(names, return_dtype=pl.String)
        .set(far & launched, str(Cause.IN_GRAPH))
        .set(far & ~launched, str(Cause.UNEXPLAINED))
    )
    for name, rows in _elsewhere(graph, trail, kernels, node):
        cause = cause.set(pl.Series(rows), str(name))
    return cause


def _elsewhere(graph: Graph, trail: Trail, kernels: pl.DataFrame, node: Ints) -> Iterator[tuple[Cause, Bools]]:
    """Pieces in which the GPU worked, on another stream, or another rank had yet to come."""
    cpu, kind = graph.nodes.cpu, kinds(graph, trail)
    runs = (node >= cpu) & np.isin(kind, (EdgeKind.RUN, EdgeKind.RENDEZVOUS))
    through_cpu = _reached_through(trail, node < cpu)
    row = np.maximum(node - cpu, 0)
    families = kernels.select(
        communication=pl.col("family") == "collective", copy=pl.col("kind") != "kernel"
    ).with_columns(compute=~pl.any_horizontal(pl.all()))
    for name, cause in (
        ("compute", Cause.WAITS_FOR_COMPUTE),
        ("copy", Cause.WAITS_FOR_COPY),
        ("communication", Cause.WAITS_FOR_COMMUNICATION),
    ):
        yield cause, runs & ~through_cpu & families[name].to_numpy()[row]
    yield Cause.SYNC_BOUND, runs & through_cpu
    if "rank" in kernels.columns:
        rank = kernels["rank"].to_numpy()
        giver = nodes_of(graph, graph.src[trail.edge]) - cpu
        abroad = (kind == EdgeKind.RENDEZVOUS) & (giver >= 0) & (rank[np.maximum(giver, 0)] != rank[row])
        yield Cause.RENDEZVOUS, _reached_through(trail, abroad)


def _reached_through(trail: Trail, rows: Bools) -> Bools:
    """Pieces to which the way back of their stretch leads through one of some pieces."""
    place = np.arange(rows.size)
    last = np.maximum.accumulate(np.where(rows, place, NONE))
    before = np.concatenate([[NONE], last])[:-1]
    reached: Bools = (before != NONE) & (trail.stretch[before] == trail.stretch)
    return reached


def _blamed_until(graph: Graph, timeline: Timeline, stretches: Stretches, trail: Trail, node: Ints) -> Ints:
    """Per piece: until when the CPU is late for having waited: from its last synchronisation on, as long as it waited.

    Of the wait, what lies in the stretch itself is blamed on it already.
    """
    waits = np.flatnonzero(np.isin(kinds(graph, trail), (EdgeKind.SYNC, EdgeKind.QUEUE)))
    call, node_end = node[waits], trail.vertex[waits]
    own = np.zeros(graph.vertex.size, dtype=np.int64)
    run = graph.kind == EdgeKind.RUN
    own[graph.dst[run]] = timeline.lag_ns[run]
    called_ns = timeline.start_ns[call]
    waited = vertex_times(graph, timeline)[node_end] - called_ns - own[node_end]
    seen = trail.begin_ns[waits] - np.maximum(called_ns, stretches.begin_ns[trail.stretch[waits]])
    until = trail.begin_ns[waits] + np.maximum(waited - np.maximum(seen, 0), 0)
    before = np.searchsorted(waits, np.arange(trail.stretch.size))
    known = before < waits.size
    before = np.where(known, before, 0)
    mine = known & (trail.stretch[waits[before]] == trail.stretch) if waits.size else known
    blamed: Ints = np.where(mine, until[before] if waits.size else 0, stretches.begin_ns[trail.stretch])
    return blamed


def long(labelled: pl.DataFrame) -> pl.DataFrame:
    """One row per piece and cause, without empty ones."""
    columns = ("window", "kernel", "cause", "time_ns")
    others = (Cause.SYNC_BOUND, Cause.ALLOCATOR, Cause.DATA_LOADING)
    parts = [labelled.with_columns(cause=pl.lit(str(cause)), time_ns=str(cause)).select(columns) for cause in others]
    return pl.concat([labelled.select(columns), *parts]).filter(pl.col("time_ns") > 0)
