"""Stream order: activities of one stream run one after the other.

The gap between queued ones is a median of the trace.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.inferred import copy_gaps, cuda_graph_gaps, dependent_launch
from tracekit.graph.nodes import NONE, Nodes
from tracekit.rules import RuleNames

# Between queued kernels of a stream: 0.75 to 2 us on A100, H100, V100; 0 on ROCm. Used where a trace never has two in
# the queue.
DEFAULT_GAP_NS = 1_000
# Queued activities further apart than this waited for something other than each other.
MAX_GAP_NS = 20_000
MIN_SAMPLES = 5
TRUNCATION_NS = 1_000
"""Profilers before 2024 truncate times to whole microseconds, and so the median of many gaps."""


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """Edges and durations that follow from stream order.

    Attributes:
        edges: Stream-order edges.
        hidden_ns: Time before each activity of a CUDA graph that stands for work the trace does not show.
        early_ns: Part of each activity's duration that is waiting for the previous activity on its stream.
    """

    edges: Edges
    hidden_ns: Ints
    early_ns: Ints


def link_streams(nodes: Nodes, kernels: pl.DataFrame, launch_edges: Edges, without: RuleNames) -> StreamOrder:
    """Build stream-order edges.

    The lag is the stream's median gap between queued activities, separately within and outside one CUDA graph, and
    between kernels or beside a copy or memset. An activity launched before the trace keeps its measured distance: its
    dependencies are not known.
    """
    before, after = nodes.find_neighbours(nodes.activities)
    gap = nodes.start_ns[after] - nodes.end_ns[before]
    ready = np.full(nodes.start_ns.size, np.iinfo(np.int64).max)
    ready[launch_edges.dst // 2] = nodes.get_vertex_times(launch_edges.src) + launch_edges.lag_ns
    queued = ready[after] < nodes.end_ns[before]
    close = queued & (gap < MAX_GAP_NS)
    launcher_before, launcher_after = nodes.launcher[before - nodes.n_host], nodes.launcher[after - nodes.n_host]
    same_graph = (launcher_before == launcher_after) & (launcher_after != NONE)

    moved = np.zeros(gap.size, dtype=np.bool_)
    if copy_gaps.RULE.is_on(without):
        moved = copy_gaps.find_copy_neighbours(nodes, kernels, before, after)

    anywhere = _estimate_gap(gap[close & ~same_graph], DEFAULT_GAP_NS)
    lag = np.full(gap.size, anywhere)
    for lane in np.unique(nodes.lane[after]).tolist():
        for graph in (False, True):
            group = (nodes.lane[after] == lane) & (same_graph == graph)
            of_group = _estimate_gap(gap[group & close], anywhere)
            for kind in (False, True):
                alike = group & (moved == kind)
                lag[alike] = _estimate_gap(gap[alike & close], of_group)
    hidden = np.zeros(nodes.activities.size, dtype=np.int64)
    if cuda_graph_gaps.RULE.is_on(without):
        distances = cuda_graph_gaps.measure_replay_gaps(nodes, kernels, before, after, queued)
        lag = np.maximum(lag, distances)
        hidden[after - nodes.n_host] = np.where(distances > cuda_graph_gaps.MIN_HIDDEN_NS, distances, 0)
    lag = np.where(launcher_after == NONE, gap, lag)
    early = np.zeros(nodes.activities.size, dtype=np.int64)
    if dependent_launch.RULE.is_on(without):
        early[after - nodes.n_host] = dependent_launch.measure_early_ns(nodes, before, after)
    return StreamOrder(Edges(EdgeKind.STREAM, to_end_vertices(before), to_start_vertices(after), lag), hidden, early)


def _estimate_gap(gaps: Ints, default: int) -> int:
    """Estimate the usual gap: the median or, for whole microseconds, the mean near the median.

    The mean averages out the truncation.
    """
    if gaps.size < MIN_SAMPLES:
        return default
    median = float(np.median(gaps))
    near = gaps[np.abs(gaps - median) <= TRUNCATION_NS]
    cut = near.size > 0 and not (gaps % TRUNCATION_NS).any()
    return round(float(near.mean() if cut else median))
