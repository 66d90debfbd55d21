"""Activities of one stream run one after the other, with a small gap between queued ones.

With programmatic dependent launch (CUDA C++ Programming Guide) a kernel may start while the one before still runs, and
waits inside for its end. That waiting isn't work: what counts begins with that end, and there is no gap.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import replays
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NONE, Nodes

# Between queued kernels of a stream: 0.75 to 2 us on A100, H100, V100; 0 on ROCm. Used where a trace never has two in
# the queue.
DEFAULT_GAP_NS = 1_000
# Queued activities further apart than this waited for something else than each other.
MAX_GAP_NS = 20_000
ENOUGH = 5
WHOLE_NS = 1_000
"""Profilers before 2024 cut times to whole microseconds, which the median of many gaps then is as well."""
# Kernels that end closer together ran side by side (branches of a graph): what waits for another outlasts it by more.
LEAST_NS = 500


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """What stream order tells.

    Attributes:
        edges: Stream order.
        hidden_ns: Time between activities of CUDA graphs that stands for work the trace doesn't show.
        early_ns: By activity, what of its duration is waiting for the one before on its stream.
    """

    edges: Edges
    hidden_ns: int
    early_ns: Ints


def link(nodes: Nodes, kernels: pl.DataFrame, launch_edges: Edges) -> StreamOrder:
    """Stream-order edges.

    The lag is the stream's median gap between queued activities, apart for those of one CUDA graph, and between kernels
    or beside a copy or set. An activity that was launched before the trace keeps its measured distance: what it waited
    for isn't known.
    """
    before, after = nodes.neighbours(nodes.activities)
    gap = nodes.start_ns[after] - nodes.end_ns[before]
    ready = np.full(nodes.start_ns.size, np.iinfo(np.int64).max)
    ready[launch_edges.dst // 2] = nodes.measured_ns(launch_edges.src) + launch_edges.lag_ns
    queued = ready[after] < nodes.end_ns[before]
    close = queued & (gap < MAX_GAP_NS)
    launcher_before, launcher_after = nodes.launcher[before - nodes.cpu], nodes.launcher[after - nodes.cpu]
    same_graph = (launcher_before == launcher_after) & (launcher_after != NONE)

    moves = (kernels["kind"] != "kernel").to_numpy()
    moved = moves[before - nodes.cpu] | moves[after - nodes.cpu]

    anywhere = _usual(gap[close & ~same_graph], DEFAULT_GAP_NS)
    lag = np.full(gap.size, anywhere)
    for lane in np.unique(nodes.lane[after]).tolist():
        for graph in (False, True):
            group = (nodes.lane[after] == lane) & (same_graph == graph)
            of_group = _usual(gap[group & close], anywhere)
            for kind in (False, True):
                alike = group & (moved == kind)
                lag[alike] = _usual(gap[alike & close], of_group)
    distances = replays.distances(nodes, kernels, before, after, queued)
    lag = np.maximum(lag, distances)
    hidden = int(distances[distances > replays.HIDDEN_NS].sum())
    lag = np.where(launcher_after == NONE, gap, lag)
    early = np.zeros(nodes.activities.size, dtype=np.int64)
    early[after - nodes.cpu] = _early(nodes, before, after)
    return StreamOrder(Edges(EdgeKind.STREAM, ends(before), starts(after), lag), hidden, early)


def _early(nodes: Nodes, before: Ints, after: Ints) -> Ints:
    """How long before the end of the one before it, which it outlasted, each started."""
    early = nodes.end_ns[before] - nodes.start_ns[after]
    waited = (early > 0) & (nodes.end_ns[after] >= nodes.end_ns[before] + LEAST_NS)
    return np.where(waited, early, 0)


def _usual(gaps: Ints, default: int) -> int:
    """Their median; of gaps in whole microseconds the mean of those next to it, which lose nothing to the cutting."""
    if gaps.size < ENOUGH:
        return default
    median = float(np.median(gaps))
    near = gaps[np.abs(gaps - median) <= WHOLE_NS]
    cut = near.size > 0 and not (gaps % WHOLE_NS).any()
    return round(float(near.mean() if cut else median))
