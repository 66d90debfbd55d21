"""Streams waiting for each other through events: as recorded, and inferred, as PyTorch's default traces don't tell.

An activity that starts later than its launch and its stream allow waited for something. If an activity on another
stream of the device ended right then, it was that one; if a large kernel held the GPU until then, it waited for room;
if it is the first of its stream, it waited for work from before the trace; else it was, most likely, what ended last
of what had been launched before. If the GPU did nothing at all meanwhile, it stalled.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import occupancy, stalls
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NONE, Nodes
from tracekit.graph.recorded import Recorded

# Shorter delays are jitter of the launch latency.
DELAY_NS = 3_000
# An awaited activity ends at most this long before its waiter starts (15 to 18 us in MI300X traces), and, by the
# jitter of clocks, this little after.
ENDED_BEFORE_NS = 12_000
ENDED_BEFORE_ON_ROCM_NS = 25_000
ENDED_AFTER_NS = 500
# From the end of the awaited activity to the start of its waiter, where the trace has no wait to learn it from.
DEFAULT_LAG_NS = 2_000
# Within that time no more than a few activities end.
LOOK_BACK = 8
# A long delay has a cause, even if nothing ended right before it was over: at most this part of it may be something
# else, mostly a kernel that left no room.
LONG_DELAY_NS = 100_000
PART_OF_DELAY = 0.1
LOOK_FAR_BACK = 32
# Delays of a stream's first activity over this are work from before the trace, not launch latency.
CARRIED_IN_NS = 50_000


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits between streams and for room on the GPU, activities that waited for work from before the trace, stalls."""

    recorded: Edges
    inferred: Edges
    occupied: Edges
    carried_in: Ints
    stalls: Edges
    stalled_ns: int


def link(nodes: Nodes, kernels: pl.DataFrame, sms: int, recorded: Recorded, launch: Edges, stream: Edges) -> Waits:
    """Edges from the end of the awaited activity to the start of the waiting one."""
    ready = np.full(nodes.start_ns.size, np.iinfo(np.int64).min)
    np.maximum.at(ready, launch.dst // 2, nodes.measured_ns(launch.src) + launch.lag_ns)
    np.maximum.at(ready, stream.dst // 2, nodes.end_ns[stream.src // 2] + stream.lag_ns)
    known = _as_recorded(nodes, recorded)
    np.maximum.at(ready, known.dst // 2, nodes.end_ns[known.src // 2] + known.lag_ns)
    launched = nodes.activities[nodes.launcher != NONE]
    delayed = launched[nodes.start_ns[launched] - ready[launched] > DELAY_NS]
    device = kernels["device"].to_numpy()
    awaited = _ended_just_before(nodes, device, delayed)
    occupied = occupancy.link(nodes, kernels, sms, delayed[awaited == NONE])
    held = occupied.dst[nodes.start_ns[occupied.src // 2] <= ready[occupied.dst // 2] + DELAY_NS] // 2
    rest = (awaited == NONE) & ~np.isin(delayed, held)
    carried_in = _carried_in(nodes, delayed[rest], ready, stream)
    rest &= ~np.isin(delayed, carried_in)
    awaited[rest] = _ended_last(nodes, device, delayed[rest], ready)
    stalled, stalled_ns = stalls.link(nodes, device, delayed[rest & (awaited == NONE)], ready, (launch, stream, known))
    found = awaited != NONE
    giver, waiter = awaited[found], delayed[found]
    lag = nodes.start_ns[waiter] - nodes.end_ns[giver]
    typical = int(np.median(lag)) if lag.size else 0
    edges = Edges(EdgeKind.EVENT, ends(giver), starts(waiter), np.minimum(lag, max(typical, 0)))
    return Waits(known, edges, occupied, carried_in, stalled, stalled_ns)


def _as_recorded(nodes: Nodes, recorded: Recorded) -> Edges:
    """Recorded waits; the lag is the median of those that were short enough for the wait to have bound."""
    lag = np.maximum(nodes.start_ns[recorded.waiter] - nodes.end_ns[recorded.giver], 0)
    bound = lag[lag < ENDED_BEFORE_NS]
    typical = int(np.median(bound)) if bound.size else DEFAULT_LAG_NS
    return Edges(EdgeKind.EVENT, ends(recorded.giver), starts(recorded.waiter), np.minimum(lag, typical))


def _ended_just_before(nodes: Nodes, device: Ints, waiting: Ints) -> Ints:
    """The activity on another stream of the same device that ended nearest to each start; ``NONE`` without one."""
    start = nodes.start_ns[waiting]
    since = start - (ENDED_BEFORE_NS if nodes.on_nvidia else ENDED_BEFORE_ON_ROCM_NS)
    return _last_to_end(nodes, device, waiting, since, start + ENDED_AFTER_NS, LOOK_BACK)


def _ended_last(nodes: Nodes, device: Ints, waiting: Ints, ready: Ints) -> Ints:
    """What long waiters waited for most likely: of what was launched before them, the last to end on another stream.

    What came after it on that stream may have kept them from starting at once, so it can be over for a while.
    """
    found = np.full(waiting.size, NONE)
    start = nodes.start_ns[waiting]
    delay = start - ready[waiting]
    long = delay > LONG_DELAY_NS
    since = np.ceil(start[long] - PART_OF_DELAY * delay[long]).astype(np.int64)
    found[long] = _last_to_end(nodes, device, waiting[long], since, start[long], LOOK_FAR_BACK, nodes.launched_ns)
    return found


def _last_to_end(
    nodes: Nodes, device: Ints, waiting: Ints, since: Ints, until: Ints, depth: int, called: Ints | None = None
) -> Ints:
    """Of what ended between two times on another stream of the same device, the last; ``NONE`` without one.

    Args:
        nodes: The nodes.
        device: Of each activity.
        waiting: Activities that wait.
        since: What ended before doesn't count, for each of them.
        until: Nor does what ended after.
        depth: How many of the last to end are looked at.
        called: When each activity was launched, if only what was launched before the waiting one counts.
    """
    by_end = nodes.activities[np.argsort(nodes.end_ns[nodes.activities], kind="stable")]
    last = np.searchsorted(nodes.end_ns[by_end], until, side="right") - 1
    found = np.full(waiting.size, NONE)
    for back in range(depth):
        candidate = by_end[np.maximum(last - back, 0)]
        fits = (
            (last >= back)
            & (nodes.end_ns[candidate] >= since)
            & (nodes.start_ns[candidate] < nodes.start_ns[waiting])
            & (nodes.lane[candidate] != nodes.lane[waiting])
            & (device[candidate - nodes.cpu] == device[waiting - nodes.cpu])
        )
        if called is not None:
            fits &= called[candidate - nodes.cpu] < called[waiting - nodes.cpu]
        found = np.where((found == NONE) & fits, candidate, found)
    return found


def _carried_in(nodes: Nodes, unexplained: Ints, ready: Ints, stream: Edges) -> Ints:
    """Unexplained waiters that are the first of their stream.

    In a trace without anything from before it, one that starts while its launch call still runs isn't: the call was
    staging memory.
    """
    has_predecessor = np.zeros(nodes.start_ns.size, dtype=np.bool_)
    has_predecessor[stream.dst // 2] = True
    late = nodes.start_ns[unexplained] - ready[unexplained] > CARRIED_IN_NS
    launcher = nodes.launcher[unexplained - nodes.cpu]
    staged = (nodes.launcher != NONE).all() & (nodes.start_ns[unexplained] < nodes.end_ns[launcher])
    carried_in: Ints = unexplained[late & ~has_predecessor[unexplained] & ~staged]
    return carried_in
