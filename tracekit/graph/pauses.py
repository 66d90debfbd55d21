"""A thread that launches steps ahead, and pauses until the GPU is done with an earlier one.

The workers of serving engines do: whoever schedules learns that a step is over in another process or thread, and tells
the worker to launch the next but one. No call of the worker tells. But while the GPU still has a later step to do, it
can't be the GPU that keeps in step with the thread; so where the thread goes on at much the same time after the end of
an earlier one, again and again, it waited for that.
"""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NO_NODES, NONE, Nodes
from tracekit.graph.polls import Polls

# Shorter pauses are the CPU's own work.
PAUSE_NS = 1_000_000
# A vLLM worker on a GH200 goes on 0.75 to 1.1 ms after the end of the step.
RETURN_WITHIN_NS = 2_000_000
SPREAD_NS = 200_000
# How many pauses have to end that way, and which part of the thread's.
ENOUGH = 3
MOST = 0.7


def find(nodes: Nodes) -> Polls:
    """The pauses of all threads that wait for the GPU."""
    lanes = np.unique(nodes.lane[nodes.launcher[nodes.launcher != NONE]]).tolist()
    found = [(NO_NODES,) * 4, *(_on_thread(nodes, lane) for lane in lanes)]
    activity, receiver, idle, lag = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Polls(Edges(EdgeKind.SYNC, ends(activity), starts(receiver), lag), receiver, idle)


def _on_thread(nodes: Nodes, lane: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Of a thread's waits the activity, the next call, how long the thread paused, and the lag between the two."""
    mine = nodes.cover_lane == lane
    start, end = nodes.cover_start_ns[mine][1:], nodes.cover_end_ns[mine][:-1]
    paused = start - end > PAUSE_NS
    resumed, idle = start[paused], (start - end)[paused]
    activity = _last_done(nodes, lane, resumed)
    receiver = nodes.first_from(np.full(resumed.size, lane), resumed)
    late = resumed - nodes.end_ns[activity]
    waited = (activity != NONE) & (receiver != NONE) & (late < np.minimum(idle, RETURN_WITHIN_NS))
    if waited.sum() < max(ENOUGH, MOST * resumed.size) or _spread(late[waited]) > SPREAD_NS:
        return NO_NODES, NO_NODES, NO_NODES, NO_NODES
    lag = round(float(np.median(late[waited]))) + nodes.start_ns[receiver] - resumed
    return activity[waited], receiver[waited], idle[waited], lag[waited]


def _last_done(nodes: Nodes, lane: int, resumed: Ints) -> Ints:
    """What ended last of the latest burst of launches that was over; ``NONE`` if all were, as the GPU then waits."""
    launched = nodes.activities[nodes.launcher != NONE]
    launched = launched[nodes.lane[nodes.launcher[launched - nodes.cpu]] == lane]
    launched = launched[np.argsort(nodes.end_ns[launched], kind="stable")]
    burst = np.searchsorted(resumed, nodes.start_ns[nodes.launcher[launched - nodes.cpu]], side="right")
    last = np.full(resumed.size + 1, NONE)
    last[burst] = launched
    ended = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    reached = np.maximum.accumulate(ended)
    latest = np.maximum.accumulate(np.where(ended == reached, np.arange(ended.size), 0))
    over = np.searchsorted(reached, resumed, side="right") - 1
    ahead = (over >= 0) & (over < np.arange(resumed.size))
    return np.where(ahead, last[latest[over]], NONE)


def _spread(values: Ints) -> float:
    """The median distance from the median."""
    return float(np.median(np.abs(values - np.median(values))))
