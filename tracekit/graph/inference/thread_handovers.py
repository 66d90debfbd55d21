"""Hand-overs from one CPU thread to another.

Between two calls a thread either works (the gap is CPU time and is kept) or waits for another thread: the main thread
during ``backward()``, which runs on autograd's own thread, and that thread between two backward passes. No event
records this. The rule: a thread that becomes quiet, and resumes after another thread that ran meanwhile became quiet,
waited for it::

    main       |==|            quiet             |====|
    autograd        |====== backward ======|
                                           |--| hand-over

A thread whose call waits for the GPU does not count as running: serving engines leave the waiting to a separate thread,
whose call began long before the first thread became quiet (vLLM).
"""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes
from tracekit.rules import Rule

RULE = Rule(
    "thread-handovers",
    "A thread that resumes right after another became quiet waited for it.",
    "PyTorch's autograd threads in the public traces of the test set. The first rule to doubt where many threads are "
    "busy.",
)
# Shorter pauses are Python between two ops; waking a thread alone takes 5 to 50 us.
MIN_QUIET_NS = 50_000
BEFORE_TRACE_NS = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Handovers:
    """Nodes that hand over, nodes that take over, and the idle time of the latter's thread before."""

    giver: Ints
    receiver: Ints
    idle_ns: Ints


NO_HANDOVERS = Handovers(EMPTY_NODES, EMPTY_NODES, EMPTY_NODES)


@dataclass(frozen=True, slots=True)
class _Bursts:
    """Periods of work on one thread without a pause longer than ``MIN_QUIET_NS``."""

    start_ns: Ints
    end_ns: Ints
    quiet_since_ns: Ints


def find_handovers(nodes: Nodes, own_ns: Ints) -> Handovers:
    """Find, for each burst, the last burst on another thread that lies entirely within the pause before it.

    Args:
        nodes: The nodes.
        own_ns: Duration of every host node without its waits.
    """
    waiting = np.flatnonzero(nodes.dur_ns[: nodes.n_host] - own_ns > MIN_QUIET_NS)
    lanes = np.unique(nodes.busy_lane).tolist()
    busy = {lane: _select_busy(nodes, lane) for lane in lanes}
    at_work = {
        lane: _find_bursts(*_subtract_waits(*busy[lane], nodes, waiting[nodes.lane[waiting] == lane])) for lane in lanes
    }
    found = (
        [_find_handovers_to(nodes, lane, _find_bursts(*busy[lane]), at_work) for lane in lanes]
        if len(lanes) > 1
        else []
    )
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)] if found else [EMPTY_NODES] * 3
    return Handovers(*columns)


def _select_busy(nodes: Nodes, lane: int) -> tuple[Ints, Ints]:
    mine = nodes.busy_lane == lane
    return nodes.busy_start_ns[mine], nodes.busy_end_ns[mine]


def _subtract_waits(start: Ints, end: Ints, nodes: Nodes, waiting: Ints) -> tuple[Ints, Ints]:
    """Subtract a thread's waiting calls from its busy intervals; of a call with nothing after it the return remains."""
    called, returned = nodes.start_ns[waiting], nodes.end_ns[waiting]
    start, end = np.sort(np.concatenate([start, returned])), np.sort(np.concatenate([end, called]))
    left = (start < end) | ~np.isin(end, called)
    return start[left], end[left]


def _find_bursts(start: Ints, end: Ints) -> _Bursts:
    first = np.concatenate([[True], start[1:] - end[:-1] > MIN_QUIET_NS])
    last = np.concatenate([first[1:], [True]])
    quiet_since = np.concatenate([[BEFORE_TRACE_NS], end[last][:-1]])
    return _Bursts(start[first], end[last], quiet_since)


def _find_handovers_to(nodes: Nodes, lane: int, mine: _Bursts, at_work: dict[int, _Bursts]) -> tuple[Ints, Ints, Ints]:
    """Return giver, receiver and idle time of every hand-over to one thread."""
    best_end = np.full(mine.start_ns.size, BEFORE_TRACE_NS)
    best_lane = np.full(mine.start_ns.size, NONE)
    for other, theirs in at_work.items():
        if other == lane:
            continue
        index = np.searchsorted(theirs.end_ns, mine.start_ns, side="right") - 1
        end, start = theirs.end_ns[index], theirs.start_ns[index]
        better = (index >= 0) & (start >= mine.quiet_since_ns) & (end > best_end)
        best_end = np.where(better, end, best_end)
        best_lane = np.where(better, other, best_lane)
    receiver = nodes.find_first_from(np.full(best_lane.size, lane), mine.start_ns)
    giver = nodes.find_last_until(best_lane, best_end)
    idle = np.where(mine.quiet_since_ns == BEFORE_TRACE_NS, 0, mine.start_ns - mine.quiet_since_ns)
    known = (best_lane != NONE) & (receiver != NONE) & (giver != NONE)
    return giver[known], receiver[known], idle[known]
