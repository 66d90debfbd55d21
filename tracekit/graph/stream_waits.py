"""Activities that start later than their launch and their stream allow: what they waited for.

The rules, in order:

1. The trace records the awaited activity.
2. An activity on another stream of the device ended right then (:mod:`.inferred.event_waits`), or one of another device
   that it was told to wait for (:mod:`.inferred.device_waits`).
3. A large kernel held the GPU until then (:mod:`.inferred.occupancy`).
4. It is the first activity of its stream (:mod:`.inferred.carried_in`).
5. The delay is long (:mod:`.inferred.long_delays`).
6. The GPU was idle meanwhile (:mod:`.inferred.gpu_stalls`).
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.inferred import carried_in, device_waits, event_waits, gpu_stalls, long_delays, occupancy
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes
from tracekit.graph.recorded.cuda_sync_events import RecordedWaits
from tracekit.rules import RuleNames
from tracekit.trace import RankTrace

# Shorter delays are jitter of the launch latency.
MIN_DELAY_NS = 3_000
# From the end of the awaited activity to the start of its waiter; used where the trace has no recorded wait to measure
# it.
DEFAULT_LAG_NS = 2_000


@dataclass(frozen=True, slots=True)
class StreamWaits:
    """Edges between streams, edges for room on the GPU and for stalls, and activities that waited for earlier work."""

    recorded: Edges
    inferred: Edges
    occupied: Edges
    carried_in: Ints
    stalls: Edges
    stalled_ns: Ints


def link_stream_waits(
    trace: RankTrace,
    nodes: Nodes,
    kernels: pl.DataFrame,
    recorded: RecordedWaits,
    launch: Edges,
    stream: Edges,
    unrecorded: Edges,
    without: RuleNames,
) -> StreamWaits:
    """Build the edges from the end of each awaited activity to the start of the one that waited."""
    ready = np.full(nodes.start_ns.size, np.iinfo(np.int64).min)
    np.maximum.at(ready, launch.dst // 2, nodes.get_vertex_times(launch.src) + launch.lag_ns)
    np.maximum.at(ready, stream.dst // 2, nodes.end_ns[stream.src // 2] + stream.lag_ns)
    np.maximum.at(ready, unrecorded.dst // 2, nodes.get_vertex_times(unrecorded.src) + unrecorded.lag_ns)
    known = _build_recorded_edges(nodes, recorded)
    np.maximum.at(ready, known.dst // 2, nodes.end_ns[known.src // 2] + known.lag_ns)
    launched = nodes.activities[nodes.launcher != NONE]
    delayed = launched[nodes.start_ns[launched] - ready[launched] > MIN_DELAY_NS]
    device = kernels["device"].to_numpy()
    awaited = np.full(delayed.size, NONE)
    if event_waits.RULE.is_on(without):
        awaited = event_waits.find_just_ended(nodes, device, delayed)
    if device_waits.RULE.is_on(without):
        alone = awaited == NONE
        awaited[alone] = device_waits.find_ended_elsewhere(trace, nodes, kernels, device, delayed[alone], ready)
    occupied = Edges(EdgeKind.OCCUPIED, *[EMPTY_NODES] * 3)
    if occupancy.RULE.is_on(without):
        sms = trace.device.sms if trace.device else 0
        occupied = occupancy.link_occupancy(nodes, kernels, sms, delayed[awaited == NONE])
    held = occupied.dst[nodes.start_ns[occupied.src // 2] <= ready[occupied.dst // 2] + MIN_DELAY_NS] // 2
    rest = (awaited == NONE) & ~np.isin(delayed, held)
    released = EMPTY_NODES
    if carried_in.RULE.is_on(without):
        released = carried_in.find_carried_in(nodes, delayed[rest], ready, stream)
    rest &= ~np.isin(delayed, released)
    if long_delays.RULE.is_on(without):
        awaited[rest] = long_delays.find_long_delay_causes(nodes, device, delayed[rest], ready)
    stalled, stalled_ns = Edges(EdgeKind.STALL, *[EMPTY_NODES] * 3), np.zeros(nodes.activities.size, dtype=np.int64)
    if gpu_stalls.RULE.is_on(without):
        unexplained = delayed[rest & (awaited == NONE)]
        stalled, stalled_ns = gpu_stalls.link_stalls(nodes, device, unexplained, ready, (launch, stream, known))
    found = awaited != NONE
    giver, waiter = awaited[found], delayed[found]
    lag = nodes.start_ns[waiter] - nodes.end_ns[giver]
    typical = int(np.median(lag)) if lag.size else 0
    edges = Edges(EdgeKind.EVENT, to_end_vertices(giver), to_start_vertices(waiter), np.minimum(lag, max(typical, 0)))
    return StreamWaits(known, edges, occupied, released, stalled, stalled_ns)


def _build_recorded_edges(nodes: Nodes, recorded: RecordedWaits) -> Edges:
    """Build the edges of recorded waits. The lag is the median over waits short enough to have been binding."""
    lag = np.maximum(nodes.start_ns[recorded.waiter] - nodes.end_ns[recorded.signaller], 0)
    bound = lag[lag < event_waits.MAX_WAKE_NS]
    typical = int(np.median(bound)) if bound.size else DEFAULT_LAG_NS
    return Edges(
        EdgeKind.EVENT,
        to_end_vertices(recorded.signaller),
        to_start_vertices(recorded.waiter),
        np.minimum(lag, typical),
    )
