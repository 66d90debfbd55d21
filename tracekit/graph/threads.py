"""Program order on CPU threads, and one thread handing over to another.

Between two calls a thread either works (the gap is CPU time and stays) or waits for another thread: the main thread
during ``backward()``, which runs on autograd's own thread, and that thread between two backward passes. No event
tells; a thread that falls quiet, and goes on after another one that ran meanwhile fell quiet in turn, is taken to
have waited for it. While a call of that other one waits for the GPU it doesn't run: serving engines leave the waiting
to a thread of its own, whose call began long before the first one fell quiet.
"""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NO_NODES, NONE, Nodes
from tracekit.graph.polls import Polls

# Shorter pauses are Python between two ops; waking a thread alone takes 5 to 50 us.
QUIET_NS = 50_000
BEFORE_THE_TRACE = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class ThreadOrder:
    """Program order, whose lag is the thread's own work; hand-overs; and the waiting that these derive again."""

    program: Edges
    handover: Edges
    idle_ns: int


def link(nodes: Nodes, polls: Polls, own_ns: Ints) -> ThreadOrder:
    """Edges between CPU nodes.

    Args:
        nodes: The nodes.
        polls: Pauses in which the thread waited for the GPU instead.
        own_ns: What every CPU node takes without its waits.
    """
    before, after = nodes.neighbours(np.arange(nodes.cpu))
    handed = _handovers(nodes, np.flatnonzero(nodes.dur_ns[: nodes.cpu] - own_ns > QUIET_NS))
    nested = nodes.start_ns[after] < nodes.end_ns[before]
    src = np.where(nested, starts(before), ends(before))
    measured = nodes.start_ns[after] - np.where(nested, nodes.start_ns[before], nodes.end_ns[before])
    waited = np.zeros(nodes.cpu, dtype=np.int64)
    np.add.at(waited, handed.receiver, handed.idle_ns)
    waited[polls.receiver] = polls.idle_ns
    own_ns = np.maximum(measured - waited[after], 0)
    lag_ns = nodes.start_ns[handed.receiver] - nodes.end_ns[handed.giver]
    return ThreadOrder(
        program=Edges(EdgeKind.PROGRAM, src, starts(after), own_ns),
        handover=Edges(EdgeKind.HANDOVER, ends(handed.giver), starts(handed.receiver), lag_ns),
        idle_ns=int((np.maximum(measured, 0) - own_ns).sum()),
    )


@dataclass(frozen=True, slots=True)
class _Handovers:
    giver: Ints
    receiver: Ints
    idle_ns: Ints


@dataclass(frozen=True, slots=True)
class _Bursts:
    """Stretches of work on one thread without a pause over ``QUIET_NS``."""

    start_ns: Ints
    end_ns: Ints
    quiet_since_ns: Ints


def _handovers(nodes: Nodes, waiting: Ints) -> _Handovers:
    """Who waited for whom: for each burst, the last one on another thread that lies wholly in the pause before it."""
    lanes = np.unique(nodes.cover_lane).tolist()
    busy = {lane: _covered(nodes, lane) for lane in lanes}
    at_work = {lane: _bursts(*_without(*busy[lane], nodes, waiting[nodes.lane[waiting] == lane])) for lane in lanes}
    found = [_handovers_to(nodes, lane, _bursts(*busy[lane]), at_work) for lane in lanes] if len(lanes) > 1 else []
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)] if found else [NO_NODES] * 3
    return _Handovers(*columns)


def _covered(nodes: Nodes, lane: int) -> tuple[Ints, Ints]:
    mine = nodes.cover_lane == lane
    return nodes.cover_start_ns[mine], nodes.cover_end_ns[mine]


def _without(start: Ints, end: Ints, nodes: Nodes, waiting: Ints) -> tuple[Ints, Ints]:
    """Intervals of a thread without calls of its that wait; where nothing followed a call, its return alone is left."""
    called, returned = nodes.start_ns[waiting], nodes.end_ns[waiting]
    start, end = np.sort(np.concatenate([start, returned])), np.sort(np.concatenate([end, called]))
    left = (start < end) | ~np.isin(end, called)
    return start[left], end[left]


def _bursts(start: Ints, end: Ints) -> _Bursts:
    first = np.concatenate([[True], start[1:] - end[:-1] > QUIET_NS])
    last = np.concatenate([first[1:], [True]])
    quiet_since = np.concatenate([[BEFORE_THE_TRACE], end[last][:-1]])
    return _Bursts(start[first], end[last], quiet_since)


def _handovers_to(nodes: Nodes, lane: int, mine: _Bursts, at_work: dict[int, _Bursts]) -> tuple[Ints, Ints, Ints]:
    """Giver, receiver and idle time of every hand-over to one thread."""
    best_end = np.full(mine.start_ns.size, BEFORE_THE_TRACE)
    best_lane = np.full(mine.start_ns.size, NONE)
    for other, theirs in at_work.items():
        if other == lane:
            continue
        index = np.searchsorted(theirs.end_ns, mine.start_ns, side="right") - 1
        end, start = theirs.end_ns[index], theirs.start_ns[index]
        better = (index >= 0) & (start >= mine.quiet_since_ns) & (end > best_end)
        best_end = np.where(better, end, best_end)
        best_lane = np.where(better, other, best_lane)
    receiver = nodes.first_from(np.full(best_lane.size, lane), mine.start_ns)
    giver = nodes.last_until(best_lane, best_end)
    idle = np.where(mine.quiet_since_ns == BEFORE_THE_TRACE, 0, mine.start_ns - mine.quiet_since_ns)
    known = (best_lane != NONE) & (receiver != NONE) & (giver != NONE)
    return giver[known], receiver[known], idle[known]
