"""Times in which the GPU was idle although work was launched, and no recorded activity explains the wait.

The first launch of a kernel loads its code, which may keep the GPU idle for milliseconds after the call has returned.
Drivers that submit launches in batches do the same. No dependency derives this time, so it is kept as measured. CUDA
graphs are excluded: they may do work that traces do not show, and :mod:`.cuda_graph_gaps` keeps what
all replays share.
"""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.nodes import NONE, Nodes
from tracekit.rules import Rule

RULE = Rule(
    "gpu-stalls",
    "A GPU that is idle although work was launched, without a recorded cause, will be idle as long on the target.",
    "torch-compile-moe, where a GPU is idle for 2.4 ms after some kernels' first launch; up to 20 % short without the "
    "rule.",
)

# Shorter delays are jitter.
MIN_STALL_NS = 100_000
# Least fraction of the delay in which the GPU was idle.
MIN_IDLE_FRACTION = 0.9


def link_stalls(
    nodes: Nodes, device: Ints, waiting: Ints, ready: Ints, earliest: tuple[Edges, ...]
) -> tuple[Edges, Ints]:
    """Build edges that keep the stall before an activity; return them and the stall before each activity.

    A stall begins when the launch call has returned, the known dependencies are over, and the GPU has nothing else to
    do::

        call    |====|
        GPU     |#### other work ####|<---- stall ---->|#### activity ####|

    Args:
        nodes: The nodes.
        device: Device of each activity.
        waiting: Launched activities that started later than anything explains.
        ready: Earliest start of each node by its known dependencies.
        earliest: The edges of these dependencies.
    """
    waiting = waiting[~nodes.is_graph_launch[nodes.launcher[waiting - nodes.n_host]]]
    start, call = nodes.start_ns[waiting], nodes.launcher[waiting - nodes.n_host]
    last = _find_last_before(nodes, device)[waiting - nodes.n_host]
    ended = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    allowed = np.maximum(ready[waiting], nodes.end_ns[call])
    stall = start - np.maximum(allowed, ended)
    stalled = (stall > MIN_STALL_NS) & (stall >= MIN_IDLE_FRACTION * (start - allowed))
    waiting, call, last, stall = (values[stalled] for values in (waiting, call, last, stall))
    kept = np.zeros(nodes.start_ns.size, dtype=np.int64)
    kept[waiting] = stall
    seen = last != NONE
    parts = [
        (to_end_vertices(call), to_start_vertices(waiting), stall),
        (to_end_vertices(last[seen]), to_start_vertices(waiting[seen]), stall[seen]),
        *((e.src[m], e.dst[m], e.lag_ns[m] + kept[e.dst[m] // 2]) for e in earliest for m in [kept[e.dst // 2] > 0]),
    ]
    src, dst, lag = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Edges(EdgeKind.STALL, src, dst, lag), kept[nodes.n_host :]


def _find_last_before(nodes: Nodes, device: Ints) -> Ints:
    """Return the last to end of the activities that started before each one on its device; ``NONE`` without one."""
    found = np.full(nodes.activities.size, NONE)
    for one in np.unique(device):
        mine = nodes.activities[device == one]
        in_order = mine[np.argsort(nodes.start_ns[mine], kind="stable")]
        end = nodes.end_ns[in_order]
        latest = np.maximum.accumulate(np.where(end == np.maximum.accumulate(end), np.arange(end.size), 0))
        found[in_order[1:] - nodes.n_host] = in_order[latest[:-1]]
    return found
