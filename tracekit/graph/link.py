"""A trace and its kernel table to the dependency graph."""

import numpy as np
import polars as pl

from tracekit.graph import events, launch, pauses, polls, queue, recorded, streams, sync, threads
from tracekit.graph.graph import Graph, Parts, assemble
from tracekit.graph.nodes import collect
from tracekit.trace import RankTrace


def link(trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame) -> Graph:
    """The dependency graph of one rank: program order, hand-overs, launches, streams, events, syncs, launch queue.

    Args:
        trace: The trace.
        kernels: Its kernel table (``schema.KERNELS``).
        marks: Moments on CPU threads that the replay should report: ``ts_ns``, ``pid``, ``tid``.
    """
    return assemble(parts(trace, kernels, marks))


def parts(trace: RankTrace, kernels: pl.DataFrame, marks: pl.DataFrame) -> Parts:
    """Nodes and edges of one rank; arguments as for :func:`link`."""
    nodes = collect(trace, kernels, marks)
    known = recorded.find(trace, nodes, kernels)
    launch_edges = launch.link(nodes, kernels, known.waiter)
    blocking = sync.link(nodes, kernels, known)
    queue_edges, own_ns = queue.link(nodes, blocking.own_ns)
    stream = streams.link(nodes, kernels, launch_edges)
    sms = trace.device.sms if trace.device else 0
    waits = events.link(nodes, kernels, sms, known, launch_edges, stream.edges)
    polled = polls.together(polls.find(trace, nodes, kernels), pauses.find(nodes))
    order = threads.link(nodes, polled, own_ns)
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
    return Parts(
        nodes=nodes,
        run_ns=np.concatenate([own_ns, nodes.dur_ns[nodes.cpu :] - stream.early_ns]),
        edges=edges,
        released=waits.carried_in,
        waited_ns=order.idle_ns + int((nodes.dur_ns[: nodes.cpu] - own_ns).sum() + stream.early_ns.sum()),
        recorded_waits=waits.recorded.src.size + known.call.size,
        inferred_waits=waits.inferred.src.size + waits.occupied.src.size + blocking.inferred + polled.receiver.size,
        hidden_ns=stream.hidden_ns,
        stalled_ns=waits.stalled_ns,
    )
