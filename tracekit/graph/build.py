"""Build the dependency graph of one rank from its trace and kernel table.

This module only orders the rules. Each is described in its own module: what CUDA guarantees (``semantics``), what the
trace records (``recorded``), what is inferred and can be switched off (``inferred``).
"""

import numpy as np
import polars as pl

from tracekit.graph import stream_waits
from tracekit.graph.graph import Graph, GraphParts, MeasuredWaits, assemble_graph
from tracekit.graph.inferred import launch_ahead, launch_queue, polled_kernels, thread_handovers, unrecorded_work
from tracekit.graph.nodes import Nodes, collect_nodes
from tracekit.graph.recorded import cuda_sync_events
from tracekit.graph.semantics import host_syncs, launches, program_order, streams
from tracekit.rules import NO_RULES, RuleNames
from tracekit.trace import RankTrace


def build_graph(trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame, without: RuleNames = NO_RULES) -> Graph:
    """Build the dependency graph of one rank.

    Edges: program order, hand-overs between threads, launches, streams, events, syncs, launch queue.

    Args:
        trace: The trace.
        kernels: Its kernel table (``schema.KERNELS``).
        marks: Times on CPU threads that the replay should report: ``ts_ns``, ``pid``, ``tid``.
        without: Inference rules that are off.
    """
    return assemble_graph(build_graph_parts(trace, kernels, marks, without))


def build_graph_parts(
    trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame, without: RuleNames = NO_RULES
) -> GraphParts:
    """Build nodes and edges of one rank; arguments as for :func:`build_graph`."""
    nodes = collect_nodes(trace, kernels, marks)
    known = cuda_sync_events.find_recorded_waits(trace, nodes, kernels)
    unrecorded = unrecorded_work.NO_WORK
    if unrecorded_work.RULE.is_on(without):
        unrecorded = unrecorded_work.find_unrecorded_work(nodes, kernels, trace.overheads)
    launch_edges = launches.link_launches(nodes, kernels, known.waiter, unrecorded.copies, without)
    blocking = host_syncs.link_host_syncs(nodes, kernels, known, unrecorded, without)
    queue_edges, own_ns = launch_queue.NO_QUEUE, blocking.own_ns
    if launch_queue.RULE.is_on(without):
        queue_edges, own_ns = launch_queue.link_launch_queue(nodes, blocking.own_ns)
    stream = streams.link_streams(nodes, kernels, launch_edges, without)
    waits = stream_waits.link_stream_waits(
        trace, nodes, kernels, known, launch_edges, stream.edges, unrecorded.edges, without
    )
    polled = _find_host_waits(trace, nodes, kernels, without)
    handed = thread_handovers.NO_HANDOVERS
    if thread_handovers.RULE.is_on(without):
        handed = thread_handovers.find_handovers(nodes, own_ns)
    order = program_order.link_threads(nodes, polled, handed)
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
) -> polled_kernels.HostWaits:
    found = [polled_kernels.NO_WAITS]
    if polled_kernels.RULE.is_on(without):
        found.append(polled_kernels.find_polled_kernels(trace, nodes, kernels))
    if launch_ahead.RULE.is_on(without):
        found.append(launch_ahead.find_launch_ahead_waits(nodes))
    return polled_kernels.merge_host_waits(*found)
