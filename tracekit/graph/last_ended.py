"""Search for the activity that ended last on another stream."""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.nodes import NONE, Nodes


def find_last_ended(
    nodes: Nodes,
    device: Ints,
    waiting: Ints,
    since: Ints,
    until: Ints,
    depth: int,
    called: Ints | None = None,
    *,
    elsewhere: bool = False,
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
        elsewhere: Whether activities of other devices count instead.
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
            & ((device[candidate - nodes.n_host] != device[waiting - nodes.n_host]) == elsewhere)
        )
        if called is not None:
            fits &= called[candidate - nodes.n_host] < called[waiting - nodes.n_host]
        found = np.where((found == NONE) & fits, candidate, found)
    return found
