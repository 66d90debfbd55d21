"""Waits between streams through CUDA events: recorded ones, and ones inferred from times (heuristic).

PyTorch's default traces do not record these waits. An activity that starts later than its launch and its stream allow
has waited for something. The rules, in order:

1. An activity on another stream of the device ended right then: it was the awaited one (``EVENT``).
2. A large kernel held the GPU until then: the activity waited for room (``OCCUPIED``).
3. It is the first activity of its stream: it waited for work from before the trace (released as measured).
4. The delay is long: it waited for the activity that ended last among those launched before it (``EVENT``).
5. The GPU was idle meanwhile: the GPU stalled (``STALL``).

Evidence: rules 1 and 3 were developed on the public traces of the test set (ROCm limits: MI300X traces). The table
"What each rule of the replay is worth" in docs/contributing/fitting-weights.md has rule 2 (HTA's trace_diff) and rule 5
(torch-compile-moe). Rule 4 orders activities right, but may name the wrong one.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.inference import gpu_stalls, occupancy
from tracekit.graph.nodes import NONE, Nodes
from tracekit.graph.recorded.cuda_sync_events import RecordedWaits

# Shorter delays are jitter of the launch latency.
MIN_DELAY_NS = 3_000
# The awaited activity ends at most this long before its waiter starts (15 to 18 us in MI300X traces) and, because
# clocks jitter, at most MAX_OVERLAP_NS after.
MAX_WAKE_NS = 12_000
MAX_WAKE_ROCM_NS = 25_000
MAX_OVERLAP_NS = 500
# From the end of the awaited activity to the start of its waiter; used where the trace has no recorded wait to measure
# it.
DEFAULT_LAG_NS = 2_000
# Number of candidates: only a few activities end within MAX_WAKE_NS.
MAX_CANDIDATES = 8
# A long delay has a cause even if nothing ended right before its end. At most this fraction of it may have another
# cause, mostly a kernel that left no room.
MIN_LONG_DELAY_NS = 100_000
MAX_UNEXPLAINED_FRACTION = 0.1
MAX_CANDIDATES_OF_LONG_DELAY = 32
# Longer delays of a stream's first activity are due to work from before the trace, not to launch latency.
MIN_CARRIED_IN_NS = 50_000


@dataclass(frozen=True, slots=True)
class StreamWaits:
    """Edges between streams, edges for room on the GPU and for stalls, and activities that waited for earlier work."""

    recorded: Edges
    inferred: Edges
    occupied: Edges
    carried_in: Ints
    stalls: Edges
    stalled_ns: int


def link_stream_waits(
    nodes: Nodes, kernels: pl.DataFrame, sms: int, recorded: RecordedWaits, launch: Edges, stream: Edges
) -> StreamWaits:
    """Build the edges from the end of each awaited activity to the start of the one that waited."""
    ready = np.full(nodes.start_ns.size, np.iinfo(np.int64).min)
    np.maximum.at(ready, launch.dst // 2, nodes.get_vertex_times(launch.src) + launch.lag_ns)
    np.maximum.at(ready, stream.dst // 2, nodes.end_ns[stream.src // 2] + stream.lag_ns)
    known = _build_recorded_edges(nodes, recorded)
    np.maximum.at(ready, known.dst // 2, nodes.end_ns[known.src // 2] + known.lag_ns)
    launched = nodes.activities[nodes.launcher != NONE]
    delayed = launched[nodes.start_ns[launched] - ready[launched] > MIN_DELAY_NS]
    device = kernels["device"].to_numpy()
    awaited = _find_just_ended(nodes, device, delayed)
    occupied = occupancy.link_occupancy(nodes, kernels, sms, delayed[awaited == NONE])
    held = occupied.dst[nodes.start_ns[occupied.src // 2] <= ready[occupied.dst // 2] + MIN_DELAY_NS] // 2
    rest = (awaited == NONE) & ~np.isin(delayed, held)
    carried_in = _find_carried_in(nodes, delayed[rest], ready, stream)
    rest &= ~np.isin(delayed, carried_in)
    awaited[rest] = _find_cause_of_long_delay(nodes, device, delayed[rest], ready)
    stalled, stalled_ns = gpu_stalls.link_stalls(
        nodes, device, delayed[rest & (awaited == NONE)], ready, (launch, stream, known)
    )
    found = awaited != NONE
    giver, waiter = awaited[found], delayed[found]
    lag = nodes.start_ns[waiter] - nodes.end_ns[giver]
    typical = int(np.median(lag)) if lag.size else 0
    edges = Edges(EdgeKind.EVENT, to_end_vertices(giver), to_start_vertices(waiter), np.minimum(lag, max(typical, 0)))
    return StreamWaits(known, edges, occupied, carried_in, stalled, stalled_ns)


def _build_recorded_edges(nodes: Nodes, recorded: RecordedWaits) -> Edges:
    """Build the edges of recorded waits. The lag is the median over waits short enough to have been binding."""
    lag = np.maximum(nodes.start_ns[recorded.waiter] - nodes.end_ns[recorded.signaller], 0)
    bound = lag[lag < MAX_WAKE_NS]
    typical = int(np.median(bound)) if bound.size else DEFAULT_LAG_NS
    return Edges(
        EdgeKind.EVENT,
        to_end_vertices(recorded.signaller),
        to_start_vertices(recorded.waiter),
        np.minimum(lag, typical),
    )


def _find_just_ended(nodes: Nodes, device: Ints, waiting: Ints) -> Ints:
    """Return the activity on another stream of the same device that ended nearest to each start, or ``NONE``."""
    start = nodes.start_ns[waiting]
    since = start - (MAX_WAKE_NS if nodes.is_nvidia else MAX_WAKE_ROCM_NS)
    return _find_last_to_end(nodes, device, waiting, since, start + MAX_OVERLAP_NS, MAX_CANDIDATES)


def _find_cause_of_long_delay(nodes: Nodes, device: Ints, waiting: Ints, ready: Ints) -> Ints:
    """Return the likely cause of long delays: the last activity to end on another stream, among those launched earlier.

    It may have ended a while before: activities that followed it on its stream can have delayed the waiter further.
    """
    found = np.full(waiting.size, NONE)
    start = nodes.start_ns[waiting]
    delay = start - ready[waiting]
    long = delay > MIN_LONG_DELAY_NS
    since = np.ceil(start[long] - MAX_UNEXPLAINED_FRACTION * delay[long]).astype(np.int64)
    found[long] = _find_last_to_end(
        nodes, device, waiting[long], since, start[long], MAX_CANDIDATES_OF_LONG_DELAY, nodes.launch_start_ns
    )
    return found


def _find_last_to_end(
    nodes: Nodes, device: Ints, waiting: Ints, since: Ints, until: Ints, depth: int, called: Ints | None = None
) -> Ints:
    """Return the last activity that ended between two times on another stream of the same device; ``NONE`` without one.

    Args:
        nodes: The nodes.
        device: Device of each activity.
        waiting: Activities that waited.
        since: Earliest end that counts, for each of them.
        until: Latest end that counts.
        depth: How many of the last activities to end are checked.
        called: Launch time of each activity, if only activities launched before the waiting one count.
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
            & (device[candidate - nodes.n_host] == device[waiting - nodes.n_host])
        )
        if called is not None:
            fits &= called[candidate - nodes.n_host] < called[waiting - nodes.n_host]
        found = np.where((found == NONE) & fits, candidate, found)
    return found


def _find_carried_in(nodes: Nodes, unexplained: Ints, ready: Ints, stream: Edges) -> Ints:
    """Return the activities with an unexplained delay that are the first of their stream.

    In a trace without earlier work, an activity that starts while its launch call still runs is not one of them: the
    call was staging memory.
    """
    has_predecessor = np.zeros(nodes.start_ns.size, dtype=np.bool_)
    has_predecessor[stream.dst // 2] = True
    late = nodes.start_ns[unexplained] - ready[unexplained] > MIN_CARRIED_IN_NS
    launcher = nodes.launcher[unexplained - nodes.n_host]
    staged = (nodes.launcher != NONE).all() & (nodes.start_ns[unexplained] < nodes.end_ns[launcher])
    carried_in: Ints = unexplained[late & ~has_predecessor[unexplained] & ~staged]
    return carried_in
