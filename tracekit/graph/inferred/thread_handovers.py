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
    "PyTorch's autograd threads: ResNet-50 on a V100 is predicted 2.3 times as long on an H100 without the rule. "
    "The first rule to doubt where many threads are busy.",
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
    """Periods of work on a thread without a pause longer than ``MIN_QUIET_NS``, of all threads."""

    lane: Ints
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
    mine = _find_bursts(nodes.busy_lane, nodes.busy_start_ns, nodes.busy_end_ns)
    theirs = _find_bursts(*_subtract_waits(nodes, waiting))
    giver_lane, giver_end = _find_givers(mine, theirs)
    receiver = nodes.find_first_from(mine.lane, mine.start_ns)
    giver = nodes.find_last_until(giver_lane, giver_end)
    idle = np.where(mine.quiet_since_ns == BEFORE_TRACE_NS, 0, mine.start_ns - mine.quiet_since_ns)
    known = (giver_lane != NONE) & (receiver != NONE) & (giver != NONE)
    return Handovers(giver[known], receiver[known], idle[known])


def _subtract_waits(nodes: Nodes, waiting: Ints) -> tuple[Ints, Ints, Ints]:
    """Subtract waiting calls from their threads' busy intervals: lane, start and end of what remains.

    Of a call with nothing after it the return remains.
    """
    lane = np.concatenate([nodes.busy_lane, nodes.lane[waiting]])
    start = np.concatenate([nodes.busy_start_ns, nodes.end_ns[waiting]])
    end = np.concatenate([nodes.busy_end_ns, nodes.start_ns[waiting]])
    is_call = np.arange(lane.size) >= nodes.busy_lane.size
    by_start, by_end = np.lexsort((start, lane)), np.lexsort((end, lane))
    start, end, called = start[by_start], end[by_end], is_call[by_end]
    left = (start < end) | ~called
    return lane[by_start][left], start[left], end[left]


def _find_bursts(lane: Ints, start: Ints, end: Ints) -> _Bursts:
    """Join busy intervals, sorted by lane and start, into bursts."""
    if not lane.size:
        return _Bursts(lane, start, end, end)
    new_lane = np.concatenate([[True], lane[1:] != lane[:-1]])
    first = new_lane | np.concatenate([[True], start[1:] - end[:-1] > MIN_QUIET_NS])
    last = np.concatenate([first[1:], [True]])
    quiet_since = np.concatenate([[BEFORE_TRACE_NS], end[last][:-1]])
    return _Bursts(lane[first], start[first], end[last], np.where(new_lane[first], BEFORE_TRACE_NS, quiet_since))


def _find_givers(mine: _Bursts, theirs: _Bursts) -> tuple[Ints, Ints]:
    """Find lane and end of the burst that hands over to each of ``mine``; ``NONE`` without one.

    It is looked for from the latest burst that ended before back to the first that ended within the pause.
    """
    by_end = np.lexsort((-theirs.lane, theirs.end_ns))
    lane, start, end = theirs.lane[by_end], theirs.start_ns[by_end], theirs.end_ns[by_end]
    place = np.searchsorted(end, mine.start_ns, side="right") - 1
    found_lane, found_end = np.full(mine.lane.size, NONE), np.full(mine.lane.size, BEFORE_TRACE_NS)
    searching = np.flatnonzero(place >= 0)
    while searching.size:
        at = place[searching]
        fits = (lane[at] != mine.lane[searching]) & (start[at] >= mine.quiet_since_ns[searching])
        found_lane[searching[fits]], found_end[searching[fits]] = lane[at[fits]], end[at[fits]]
        goes_on = ~fits & (at > 0) & (end[at] > mine.quiet_since_ns[searching])
        searching = searching[goes_on]
        place[searching] -= 1
    return found_lane, found_end
