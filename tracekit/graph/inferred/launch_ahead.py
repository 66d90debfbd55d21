"""Threads that launch steps ahead, and pause until the GPU has finished an earlier step.

Workers of serving engines do this. The scheduler, in another process or thread, learns that a step is over and tells
the worker to launch the step after the next. No call of the worker shows the wait. But while the GPU still has a later
step to run, the GPU is not waiting for the thread. So if the thread resumes repeatedly at about the same delay after
the end of an earlier step, the thread waited for that step::

    GPU      |==== step 1 ====||==== step 2 ====||==== step 3 ====|
    worker     |launch 2|   pause   |launch 3|   pause   |launch 4|
                              |----| 0.75 to 1.1 ms after the end of step 1
"""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.inferred.polled_kernels import HostWaits
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes
from tracekit.rules import Rule

RULE = Rule(
    "launch-ahead",
    "A thread that repeatedly resumes at the same delay after an earlier step's end waited for that step.",
    "One vLLM worker on a GH200 (all four thresholds).",
)

# Shorter pauses are the CPU's own work.
MIN_PAUSE_NS = 1_000_000
# A vLLM worker on a GH200 resumes 0.75 to 1.1 ms after the end of the step.
MAX_RESUME_DELAY_NS = 2_000_000
MAX_SPREAD_NS = 200_000
# How many pauses have to end like that, and which fraction of all pauses of the thread.
MIN_PAUSES = 3
MIN_PAUSE_FRACTION = 0.7


def find_launch_ahead_waits(nodes: Nodes) -> HostWaits:
    """Find the pauses in which threads waited for the GPU."""
    lanes = np.unique(nodes.lane[nodes.launcher[nodes.launcher != NONE]]).tolist()
    found = [(EMPTY_NODES,) * 4, *(_find_on_thread(nodes, lane) for lane in lanes)]
    activity, receiver, idle, lag = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return HostWaits(Edges(EdgeKind.SYNC, to_end_vertices(activity), to_start_vertices(receiver), lag), receiver, idle)


def _find_on_thread(nodes: Nodes, lane: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return activity, next call, idle time and lag of each wait of one thread."""
    mine = nodes.busy_lane == lane
    start, end = nodes.busy_start_ns[mine][1:], nodes.busy_end_ns[mine][:-1]
    paused = start - end > MIN_PAUSE_NS
    resumed, idle = start[paused], (start - end)[paused]
    activity = _find_last_done(nodes, lane, resumed)
    receiver = nodes.find_first_from(np.full(resumed.size, lane), resumed)
    late = resumed - nodes.end_ns[activity]
    waited = (activity != NONE) & (receiver != NONE) & (late < np.minimum(idle, MAX_RESUME_DELAY_NS))
    if (
        waited.sum() < max(MIN_PAUSES, MIN_PAUSE_FRACTION * resumed.size)
        or _compute_spread(late[waited]) > MAX_SPREAD_NS
    ):
        return EMPTY_NODES, EMPTY_NODES, EMPTY_NODES, EMPTY_NODES
    lag = round(float(np.median(late[waited]))) + nodes.start_ns[receiver] - resumed
    return activity[waited], receiver[waited], idle[waited], lag[waited]


def _find_last_done(nodes: Nodes, lane: int, resumed: Ints) -> Ints:
    """Return the last activity of the latest finished burst of launches; ``NONE`` if every burst had finished.

    If all were finished, the GPU was waiting for the thread.
    """
    launched = nodes.activities[nodes.launcher != NONE]
    launched = launched[nodes.lane[nodes.launcher[launched - nodes.n_host]] == lane]
    launched = launched[np.argsort(nodes.end_ns[launched], kind="stable")]
    burst = np.searchsorted(resumed, nodes.start_ns[nodes.launcher[launched - nodes.n_host]], side="right")
    last = np.full(resumed.size + 1, NONE)
    last[burst] = launched
    ended = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    reached = np.maximum.accumulate(ended)
    latest = np.maximum.accumulate(np.where(ended == reached, np.arange(ended.size), 0))
    over = np.searchsorted(reached, resumed, side="right") - 1
    ahead = (over >= 0) & (over < np.arange(resumed.size))
    return np.where(ahead, last[latest[over]], NONE)


def _compute_spread(values: Ints) -> float:
    """Return the median absolute deviation."""
    return float(np.median(np.abs(values - np.median(values))))
