"""The launch queue: a launch waits while its stream holds as many activities as the driver takes.

On CUDA a stream holds 1022 launches, the running one included.
"""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes
from tracekit.rules import Rule

RULE = Rule(
    "launch-queue",
    "A launch waits while its stream holds 1022 activities.",
    "One A100 trace, in which 885 of 919 long launches saw exactly that many, and returned 6.2 us (p10 to p90: "
    "5.5 to 7.2) after the end of the activity 1022 places before. ResNet-50 on a V100: predicted 3 times as long "
    "on an H100 without the rule.",
)

QUEUE_DEPTH = 1022
RETURN_LAG_NS = 6_000
# Largest deviation of a measured return from the rule, and the least duration of such a launch as a multiple of the
# typical one.
TOLERANCE_NS = 20_000
MIN_DURATION_RATIO = 3


NO_QUEUE = Edges(EdgeKind.QUEUE, EMPTY_NODES, EMPTY_NODES, EMPTY_NODES)


def link_launch_queue(nodes: Nodes, own_ns: Ints) -> tuple[Edges, Ints]:
    """Build edges from the end of the activity that frees a place to the end of the launch that takes it.

    Args:
        nodes: The nodes.
        own_ns: Duration of every host node without the waits found so far.

    Returns:
        The edges, and ``own_ns`` without the waits of launches in a full queue.
    """
    if not nodes.is_nvidia:
        return NO_QUEUE, own_ns
    pairs = [_pair_launches(nodes, lane) for lane in np.unique(nodes.lane[nodes.n_host :]).tolist()]
    frees, launch = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    late = nodes.end_ns[launch] - nodes.end_ns[frees]
    possible = late >= 0
    frees, launch, late = frees[possible], launch[possible], late[possible]
    typical = int(np.median(own_ns[np.unique(nodes.launcher[nodes.launcher != NONE])])) if launch.size else 0
    waited = (np.abs(late - RETURN_LAG_NS) < TOLERANCE_NS) & (nodes.dur_ns[launch] > MIN_DURATION_RATIO * typical)
    own = own_ns.copy()
    own[launch[waited]] = typical
    return Edges(
        EdgeKind.QUEUE, to_end_vertices(frees), to_end_vertices(launch), np.full(launch.size, RETURN_LAG_NS)
    ), own


def _pair_launches(nodes: Nodes, lane: int) -> tuple[Ints, Ints]:
    """Return (activity, launch) pairs ``QUEUE_DEPTH`` places apart; a CUDA graph takes one place."""
    activities = nodes.activities[nodes.lane[nodes.n_host :] == lane]
    activities = activities[np.argsort(nodes.start_ns[activities], kind="stable")]
    launcher = nodes.launcher[activities - nodes.n_host]
    last_of_launch = np.concatenate([(launcher[1:] != launcher[:-1]) | (launcher[1:] == NONE), [True]])
    places, launches = activities[last_of_launch], launcher[last_of_launch]
    frees, launch = places[:-QUEUE_DEPTH], launches[QUEUE_DEPTH:]
    return frees[launch != NONE], launch[launch != NONE]
