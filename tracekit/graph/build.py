"""Build the dependency graph of one rank from its trace and kernel table.

This module only orders the rules; each is described in the module that builds its edges.
"""

import numpy as np
import polars as pl

from tracekit.graph import stream_waits
from tracekit.graph.graph import Graph, GraphParts, assemble_graph
from tracekit.graph.inference import launch_ahead, launch_queue, polled_kernels, thread_handovers
from tracekit.graph.nodes import collect_nodes
from tracekit.graph.recorded import cuda_sync_events
from tracekit.graph.semantics import host_syncs, launches, streams
from tracekit.trace import RankTrace


def build_graph(trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame) -> Graph:
    """Build the dependency graph of one rank.

    Edges: program order, hand-overs between threads, launches, streams, events, syncs, launch queue.

    Args:
        trace: The trace.
        kernels: Its kernel table (``schema.KERNELS``).
        marks: Times on CPU threads that the replay should report: ``ts_ns``, ``pid``, ``tid``.
    """
    return assemble_graph(build_graph_parts(trace, kernels, marks))


def build_graph_parts(trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame) -> GraphParts:
    """Build nodes and edges of one rank; arguments as for :func:`build_graph`."""
    nodes = collect_nodes(trace, kernels, marks)
    known = cuda_sync_events.find_recorded_waits(trace, nodes, kernels)
    launch_edges = launches.link_launches(nodes, kernels, known.waiter)
    blocking = host_syncs.link_host_syncs(nodes, kernels, known)
    queue_edges, own_ns = launch_queue.link_launch_queue(nodes, blocking.own_ns)
    stream = streams.link_streams(nodes, kernels, launch_edges)
    sms = trace.device.sms if trace.device else 0
    waits = stream_waits.link_stream_waits(nodes, kernels, sms, known, launch_edges, stream.edges)
    polled = polled_kernels.merge_host_waits(
        polled_kernels.find_polled_kernels(trace, nodes, kernels), launch_ahead.find_launch_ahead_waits(nodes)
    )
    order = thread_handovers.link_threads(nodes, polled, own_ns)
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
    )
    return GraphParts(
        nodes=nodes,
        run_ns=np.concatenate([own_ns, nodes.dur_ns[nodes.n_host :] - stream.early_ns]),
        edges=edges,
        released=waits.carried_in,
        derived_wait_ns=order.idle_ns + int((nodes.dur_ns[: nodes.n_host] - own_ns).sum() + stream.early_ns.sum()),
        recorded_waits=waits.recorded.src.size + known.call.size,
        inferred_waits=waits.inferred.src.size + waits.occupied.src.size + blocking.n_inferred + polled.receiver.size,
        hidden_ns=stream.hidden_ns,
        stalled_ns=waits.stalled_ns,
    )
