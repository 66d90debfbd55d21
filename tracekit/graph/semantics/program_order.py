"""Program order: the calls of a CPU thread follow one another. Between two calls the thread works or waits."""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.inferred.polled_kernels import HostWaits
from tracekit.graph.inferred.thread_handovers import Handovers
from tracekit.graph.nodes import Nodes


@dataclass(frozen=True, slots=True)
class ThreadOrder:
    """Program-order edges, whose lag is the thread's own work; hand-over edges; and the idle time they derive.

    ``idle_ns`` is the idle time before each host node.
    """

    program: Edges
    handover: Edges
    idle_ns: Ints


def link_threads(nodes: Nodes, polls: HostWaits, handed: Handovers) -> ThreadOrder:
    """Build edges between host nodes.

    Args:
        nodes: The nodes.
        polls: Pauses in which the thread waited for the GPU.
        handed: Pauses in which the thread waited for another thread.
    """
    before, after = nodes.find_neighbours(np.arange(nodes.n_host))
    nested = nodes.start_ns[after] < nodes.end_ns[before]
    src = np.where(nested, to_start_vertices(before), to_end_vertices(before))
    measured = nodes.start_ns[after] - np.where(nested, nodes.start_ns[before], nodes.end_ns[before])
    waited = np.zeros(nodes.n_host, dtype=np.int64)
    np.add.at(waited, handed.receiver, handed.idle_ns)
    waited[polls.receiver] = polls.idle_ns
    work_ns: Ints = np.maximum(measured - waited[after], 0)
    idle_ns = np.zeros(nodes.n_host, dtype=np.int64)
    idle_ns[after] = np.maximum(measured, 0) - work_ns
    lag_ns = nodes.start_ns[handed.receiver] - nodes.end_ns[handed.giver]
    return ThreadOrder(
        program=Edges(EdgeKind.PROGRAM, src, to_start_vertices(after), work_ns),
        handover=Edges(EdgeKind.HANDOVER, to_end_vertices(handed.giver), to_start_vertices(handed.receiver), lag_ns),
        idle_ns=idle_ns,
    )
