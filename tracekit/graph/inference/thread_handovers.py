"""Program order on CPU threads (semantics), and hand-overs from one thread to another (heuristic).

Between two calls a thread either works (the gap is CPU time and is kept) or waits for another thread: the main thread
during ``backward()``, which runs on autograd's own thread, and that thread between two backward passes. No event
records this. The rule: a thread that becomes quiet, and resumes after another thread that ran meanwhile became quiet,
waited for it::

    main       |==|            quiet             |====|
    autograd        |====== backward ======|
                                           |--| hand-over

A thread whose call waits for the GPU does not count as running: serving engines leave the waiting to a separate thread,
whose call began long before the first thread became quiet (vLLM).

Evidence: PyTorch's autograd threads in the public traces of the test set. The rule is the first to doubt in traces with
many busy threads.
"""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.inference.polled_kernels import HostWaits
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes

# Shorter pauses are Python between two ops; waking a thread alone takes 5 to 50 us.
MIN_QUIET_NS = 50_000
BEFORE_TRACE_NS = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class ThreadOrder:
    """Program-order edges, whose lag is the thread's own work; hand-over edges; and the idle time these derive."""

    program: Edges
    handover: Edges
    idle_ns: int


def link_threads(nodes: Nodes, polls: HostWaits, own_ns: Ints) -> ThreadOrder:
    """Build edges between host nodes.

    Args:
        nodes: The nodes.
        polls: Pauses in which the thread waited for the GPU instead.
        own_ns: Duration of every host node without its waits.
    """
    before, after = nodes.find_neighbours(np.arange(nodes.n_host))
    handed = _find_handovers(nodes, np.flatnonzero(nodes.dur_ns[: nodes.n_host] - own_ns > MIN_QUIET_NS))
    nested = nodes.start_ns[after] < nodes.end_ns[before]
    src = np.where(nested, to_start_vertices(before), to_end_vertices(before))
    measured = nodes.start_ns[after] - np.where(nested, nodes.start_ns[before], nodes.end_ns[before])
    waited = np.zeros(nodes.n_host, dtype=np.int64)
    np.add.at(waited, handed.receiver, handed.idle_ns)
    waited[polls.receiver] = polls.idle_ns
    own_ns = np.maximum(measured - waited[after], 0)
    lag_ns = nodes.start_ns[handed.receiver] - nodes.end_ns[handed.giver]
    return ThreadOrder(
        program=Edges(EdgeKind.PROGRAM, src, to_start_vertices(after), own_ns),
        handover=Edges(EdgeKind.HANDOVER, to_end_vertices(handed.giver), to_start_vertices(handed.receiver), lag_ns),
        idle_ns=int((np.maximum(measured, 0) - own_ns).sum()),
    )


@dataclass(frozen=True, slots=True)
class _Handovers:
    giver: Ints
    receiver: Ints
    idle_ns: Ints


@dataclass(frozen=True, slots=True)
class _Bursts:
    """Periods of work on one thread without a pause longer than ``MIN_QUIET_NS``."""

    start_ns: Ints
    end_ns: Ints
    quiet_since_ns: Ints


def _find_handovers(nodes: Nodes, waiting: Ints) -> _Handovers:
    """Find, for each burst, the last burst on another thread that lies entirely within the pause before it."""
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
    return _Handovers(*columns)


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
