"""Insert collectives between two kernels of a stream, with nothing that runs at the same time."""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.edit import compute_edge_destinations, insert_activities, insert_edges
from tracekit.graph.nodes import NONE
from tracekit.graph.semantics.streams import DEFAULT_GAP_NS
from tracekit.graph.stream_waits import DEFAULT_LAG_NS
from tracekit.messages import Message
from tracekit.messages import layout_notes as told
from tracekit.parallelism.inserted import NO_NODE, add_host_time, find_stream_neighbours
from tracekit.parallelism.stragglers import HOST_SPEED_PCT


def find_launch_calls(graph: Graph, activity: Ints) -> Ints:
    """Find the host call that launches each activity.

    It is ``NONE`` for activities of CUDA graphs, and where what-if edits set the call's time to zero.
    """
    nodes = graph.nodes
    call = nodes.launcher[activity - nodes.n_host]
    launches = np.bincount(nodes.launcher[nodes.launcher != NONE], minlength=nodes.n_host)
    takes_time = np.zeros(nodes.start_ns.size, dtype=np.bool_)
    takes_time[compute_edge_destinations(graph)[(graph.kind == EdgeKind.RUN) & (graph.lag_ns > 0)] // 2] = True
    return np.where((call != NONE) & (launches[call] == 1) & takes_time[call], call, NONE)


def describe_host_cost(graph: Graph, behind: Ints, cost_ns: int) -> Message:
    """Describe the host cost of such collectives.

    Args:
        graph: The graph.
        behind: Activities that the collectives follow.
        cost_ns: Host cost of one collective, where the activity before it has a launch call of its own.
    """
    if (find_launch_calls(graph, behind) == NONE).all():
        return told.INSERTED_WITHOUT_HOST_COST()
    return told.INSERTED_HOST_COST(launch_us=cost_ns / 1e3, host_pct=HOST_SPEED_PCT)


def insert_in_stream(graph: Graph, behind: Ints, cost_ns: int) -> Graph:
    """Insert one collective after each of some activities; the next kernel on their stream waits for it.

    ::

        compute stream | behind |            | next kernel
        new stream              | collective |
        host           | launch behind | launch collective (cost_ns) | ...

    Args:
        graph: The graph.
        behind: Activities, in order of launch.
        cost_ns: Host cost of one collective, where the activity before it has a launch call of its own.
    """
    nodes = graph.nodes
    call = find_launch_calls(graph, behind)
    launched = call != NONE
    added = nodes.start_ns.size + np.arange(behind.size)
    host = add_host_time(graph, call[:0], call[launched], cost_ns)
    grown = insert_activities(host, np.full(behind.size, nodes.lane.max() + 1), nodes.end_ns[behind])
    following = find_stream_neighbours(graph)[0][behind]
    awaited = following != NO_NODE
    edges = (
        (EdgeKind.PROGRAM, to_end_vertices(call[launched]), to_start_vertices(added[launched]), cost_ns),
        (EdgeKind.EVENT, to_end_vertices(behind), to_start_vertices(added), DEFAULT_LAG_NS),
        (EdgeKind.EVENT, to_end_vertices(added[awaited]), to_start_vertices(following[awaited]), DEFAULT_LAG_NS),
        (EdgeKind.STREAM, to_end_vertices(added[:-1]), to_start_vertices(added[1:]), DEFAULT_GAP_NS),
    )
    return insert_edges(grown, *(Edges(kind, src, dst, np.full(src.size, lag_ns)) for kind, src, dst, lag_ns in edges))
