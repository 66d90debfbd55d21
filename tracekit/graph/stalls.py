"""Times in which the GPU stood still with work launched, and nothing that was recorded can be what it waited for.

The first launch of a kernel loads its code, and may keep the GPU from working for milliseconds after the call has
returned; drivers that submit launches in batches do the same. No dependency derives that, so it is kept as measured.
Not so within CUDA graphs, which may do work that traces don't show: what of that stays is what all replays share.
"""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NONE, Nodes

# Shorter delays are jitter.
STALL_NS = 100_000
# For this part of the delay the GPU did nothing.
STILL = 0.9


def link(nodes: Nodes, device: Ints, waiting: Ints, ready: Ints, earliest: tuple[Edges, ...]) -> tuple[Edges, int]:
    """Edges that keep the stall before an activity, and how long all stalls are together.

    A stall begins once the launch call has returned, what the activity is known to wait for is over, and the GPU has
    nothing else to do.

    Args:
        nodes: The nodes.
        device: Of each activity.
        waiting: Launched activities that started later than anything explains.
        ready: When each node could have started.
        earliest: The edges that say so.
    """
    waiting = waiting[~nodes.launches_graph[nodes.launcher[waiting - nodes.cpu]]]
    start, call = nodes.start_ns[waiting], nodes.launcher[waiting - nodes.cpu]
    last = _last_before(nodes, device)[waiting - nodes.cpu]
    ended = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    allowed = np.maximum(ready[waiting], nodes.end_ns[call])
    stall = start - np.maximum(allowed, ended)
    stalled = (stall > STALL_NS) & (stall >= STILL * (start - allowed))
    waiting, call, last, stall = (values[stalled] for values in (waiting, call, last, stall))
    kept = np.zeros(nodes.start_ns.size, dtype=np.int64)
    kept[waiting] = stall
    seen = last != NONE
    parts = [
        (ends(call), starts(waiting), stall),
        (ends(last[seen]), starts(waiting[seen]), stall[seen]),
        *((e.src[m], e.dst[m], e.lag_ns[m] + kept[e.dst[m] // 2]) for e in earliest for m in [kept[e.dst // 2] > 0]),
    ]
    src, dst, lag = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Edges(EdgeKind.STALL, src, dst, lag), int(stall.sum())


def _last_before(nodes: Nodes, device: Ints) -> Ints:
    """Of the activities that started before each one on its device, the one that ended last; ``NONE`` without one."""
    found = np.full(nodes.activities.size, NONE)
    for one in np.unique(device):
        mine = nodes.activities[device == one]
        in_order = mine[np.argsort(nodes.start_ns[mine], kind="stable")]
        end = nodes.end_ns[in_order]
        latest = np.maximum.accumulate(np.where(end == np.maximum.accumulate(end), np.arange(end.size), 0))
        found[in_order[1:] - nodes.cpu] = in_order[latest[:-1]]
    return found
