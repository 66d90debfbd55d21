"""Activities of one stream run one after the other, with a small gap between queued ones."""

import numpy as np
import numpy.typing as npt

from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NONE, Nodes

Ints = npt.NDArray[np.int64]

# Between queued kernels of a stream: 0.75 to 2 us on A100, H100, V100; negative with programmatic dependent launch,
# 0 on ROCm. Used where a trace never has two in the queue.
DEFAULT_GAP_NS = 1_000
ENOUGH = 5


def link(nodes: Nodes, launch_edges: Edges) -> Edges:
    """Stream-order edges.

    The lag is the stream's median gap between queued activities, apart for those of one CUDA graph. An activity that
    was launched before the trace keeps its measured distance: what it waited for isn't known.
    """
    before, after = nodes.neighbours(nodes.activities)
    gap = nodes.start_ns[after] - nodes.end_ns[before]
    ready = np.full(nodes.start_ns.size, np.iinfo(np.int64).max)
    ready[launch_edges.dst // 2] = nodes.start_ns[launch_edges.src // 2] + launch_edges.lag_ns
    queued = ready[after] < nodes.end_ns[before]
    launcher_before, launcher_after = nodes.launcher[before - nodes.cpu], nodes.launcher[after - nodes.cpu]
    same_graph = (launcher_before == launcher_after) & (launcher_after != NONE)

    lag = np.full(gap.size, _median(gap[queued & ~same_graph], DEFAULT_GAP_NS))
    for lane in np.unique(nodes.lane[after]).tolist():
        for graph in (False, True):
            group = (nodes.lane[after] == lane) & (same_graph == graph)
            lag[group] = _median(gap[group & queued], int(lag[group][0]) if group.any() else 0)
    lag = np.where(launcher_after == NONE, gap, lag)
    return Edges(EdgeKind.STREAM, ends(before), starts(after), lag)


def _median(values: Ints, default: int) -> int:
    return round(float(np.median(values))) if values.size >= ENOUGH else default
