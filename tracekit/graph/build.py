"""Build the dependency graph of one rank from its trace and kernel table.

This module only orders the rules. What CUDA guarantees is in ``semantics`` and ``host_syncs``, what the trace records
in ``recorded``, what is inferred and can be switched off in ``inferred``.

Activities that start later than their launch and their stream allow have waited. The rules for what, in order:

1. The trace records the awaited activity.
2. An activity on another stream of the device ended right then, or one of another device that it was told to wait for.
3. A large kernel held the GPU until then.
4. It is the first activity of its stream.
5. The delay is long.
6. The GPU was idle meanwhile.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import host_syncs, recorded, semantics
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.graph import Graph, GraphParts, MeasuredWaits, assemble_graph
from tracekit.graph.inferred import awaited_streams, blocking_waits, gpu_room, host_pauses, submissions
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes, collect_nodes
from tracekit.graph.recorded import RecordedWaits
from tracekit.rules import NO_RULES, RuleNames
from tracekit.trace import RankTrace


def build_graph(trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame, without: RuleNames = NO_RULES) -> Graph:
    """Build the dependency graph of one rank.

    Edges: program order, hand-overs between threads, launches, streams, events, syncs, launch queue.

    ``marks`` are times on CPU threads that the replay should report: ``ts_ns``, ``pid``, ``tid``.
    """
    return assemble_graph(build_graph_parts(trace, kernels, marks, without))


def build_graph_parts(
    trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame, without: RuleNames = NO_RULES
) -> GraphParts:
    """Build nodes and edges of one rank; arguments as for :func:`build_graph`."""
    nodes = collect_nodes(trace, kernels, marks)
    known = recorded.find_recorded_waits(trace, nodes, kernels)
    unrecorded = blocking_waits.NO_WORK
    if blocking_waits.UNRECORDED_WORK_RULE.is_on(without):
        unrecorded = blocking_waits.find_unrecorded_work(nodes, kernels, trace.overheads)
    launch_edges = semantics.link_launches(nodes, kernels, known.waiter, unrecorded.copies, without)
    blocking = host_syncs.link_host_syncs(nodes, kernels, known, unrecorded, without)
    queue_edges, own_ns = submissions.NO_QUEUE, blocking.own_ns
    if submissions.LAUNCH_QUEUE_RULE.is_on(without):
        queue_edges, own_ns = submissions.link_launch_queue(nodes, blocking.own_ns)
    stream = semantics.link_streams(nodes, kernels, launch_edges, without)
    waits = link_stream_waits(trace, nodes, kernels, known, launch_edges, stream.edges, unrecorded.edges, without)
    polled = _find_host_waits(trace, nodes, kernels, without)
    handed = host_pauses.NO_HANDOVERS
    if host_pauses.THREAD_HANDOVERS_RULE.is_on(without):
        handed = host_pauses.find_handovers(nodes, own_ns)
    order = semantics.link_threads(nodes, polled, handed)
    edges = (
        order.program,
        order.handover,
        polled.edges,
        launch_edges,
        stream.edges,
        waits.recorded,
        waits.inferred,
        waits.occupied,
        waits.stalls,
        blocking.edges,
        queue_edges,
        unrecorded.edges,
        blocking.unrecorded,
    )
    derived_ns = order.idle_ns + nodes.dur_ns[: nodes.n_host] - own_ns
    derived_ns[unrecorded.calls] -= unrecorded.calls_ns
    return GraphParts(
        nodes=nodes,
        run_ns=np.concatenate([own_ns, nodes.dur_ns[nodes.n_host :] - stream.early_ns]),
        edges=edges,
        released=waits.carried_in,
        waits=MeasuredWaits(
            derived_ns=np.concatenate([derived_ns, stream.early_ns]),
            hidden_ns=stream.hidden_ns,
            stalled_ns=waits.stalled_ns,
        ),
        recorded_waits=waits.recorded.src.size + known.call.size,
        inferred_waits=waits.inferred.src.size + waits.occupied.src.size + blocking.n_inferred + polled.receiver.size,
    )


def _find_host_waits(
    trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame, without: RuleNames
) -> host_pauses.HostWaits:
    found = [host_pauses.NO_WAITS]
    if host_pauses.POLLED_KERNELS_RULE.is_on(without):
        found.append(host_pauses.find_polled_kernels(trace, nodes, kernels))
    if host_pauses.LAUNCH_AHEAD_RULE.is_on(without):
        found.append(host_pauses.find_launch_ahead_waits(nodes))
    return host_pauses.merge_host_waits(*found)


# Shorter delays are jitter of the launch latency.
MIN_DELAY_NS = 3_000
# From the end of the awaited activity to the start of its waiter; used where the trace has no recorded wait to measure
# it.
DEFAULT_LAG_NS = 2_000


@dataclass(frozen=True, slots=True)
class StreamWaits:
    """Edges between streams, edges for room on the GPU and for stalls, and activities that waited for earlier work."""

    recorded: Edges
    inferred: Edges
    occupied: Edges
    carried_in: Ints
    stalls: Edges
    stalled_ns: Ints


def link_stream_waits(
    trace: RankTrace,
    nodes: Nodes,
    kernels: pl.DataFrame,
    recorded: RecordedWaits,
    launch: Edges,
    stream: Edges,
    unrecorded: Edges,
    without: RuleNames,
) -> StreamWaits:
    """Build the edges from the end of each awaited activity to the start of the one that waited.

    The rules of this module's docstring, in its order: each is asked of the delayed activities that those before it
    didn't explain.
    """
    known = _build_recorded_edges(nodes, recorded)
    ready = _find_ready_times(nodes, (launch, stream, unrecorded, known))
    launched = nodes.activities[nodes.launcher != NONE]
    delayed = launched[nodes.start_ns[launched] - ready[launched] > MIN_DELAY_NS]
    device = kernels["device"].to_numpy()
    awaited = np.full(delayed.size, NONE)
    if awaited_streams.EVENT_WAITS_RULE.is_on(without):
        awaited = awaited_streams.find_just_ended(nodes, device, delayed)
    if awaited_streams.DEVICE_WAITS_RULE.is_on(without):
        alone = awaited == NONE
        awaited[alone] = awaited_streams.find_ended_elsewhere(trace, nodes, kernels, device, delayed[alone], ready)
    occupied = Edges(EdgeKind.OCCUPIED, *[EMPTY_NODES] * 3)
    if gpu_room.OCCUPANCY_RULE.is_on(without):
        sms = trace.device.sms if trace.device else 0
        occupied = gpu_room.link_occupancy(nodes, kernels, sms, delayed[awaited == NONE])
    held = occupied.dst[nodes.start_ns[occupied.src // 2] <= ready[occupied.dst // 2] + MIN_DELAY_NS] // 2
    rest = (awaited == NONE) & ~np.isin(delayed, held)
    released = EMPTY_NODES
    if awaited_streams.CARRIED_IN_RULE.is_on(without):
        released = awaited_streams.find_carried_in(nodes, delayed[rest], ready, stream)
    rest &= ~np.isin(delayed, released)
    if awaited_streams.LONG_DELAYS_RULE.is_on(without):
        awaited[rest] = awaited_streams.find_long_delay_causes(nodes, device, delayed[rest], ready)
    stalled, stalled_ns = Edges(EdgeKind.STALL, *[EMPTY_NODES] * 3), np.zeros(nodes.activities.size, dtype=np.int64)
    if gpu_room.GPU_STALLS_RULE.is_on(without):
        unexplained = delayed[rest & (awaited == NONE)]
        stalled, stalled_ns = gpu_room.link_stalls(nodes, device, unexplained, ready, (launch, stream, known))
    found = awaited != NONE
    giver, waiter = awaited[found], delayed[found]
    lag = nodes.start_ns[waiter] - nodes.end_ns[giver]
    typical = int(np.median(lag)) if lag.size else 0
    edges = Edges(EdgeKind.EVENT, to_end_vertices(giver), to_start_vertices(waiter), np.minimum(lag, max(typical, 0)))
    return StreamWaits(known, edges, occupied, released, stalled, stalled_ns)


def _find_ready_times(nodes: Nodes, causes: Iterable[Edges]) -> Ints:
    """Find when each node could have started for all that some edges ask for; least where they ask for nothing."""
    ready = np.full(nodes.start_ns.size, np.iinfo(np.int64).min)
    for edges in causes:
        np.maximum.at(ready, edges.dst // 2, nodes.get_vertex_times(edges.src) + edges.lag_ns)
    return ready


def _build_recorded_edges(nodes: Nodes, recorded: RecordedWaits) -> Edges:
    """Build the edges of recorded waits. The lag is the median over waits short enough to have been binding."""
    lag = np.maximum(nodes.start_ns[recorded.waiter] - nodes.end_ns[recorded.signaller], 0)
    bound = lag[lag < awaited_streams.MAX_WAKE_NS]
    typical = int(np.median(bound)) if bound.size else DEFAULT_LAG_NS
    return Edges(
        EdgeKind.EVENT,
        to_end_vertices(recorded.signaller),
        to_start_vertices(recorded.waiter),
        np.minimum(lag, typical),
    )
