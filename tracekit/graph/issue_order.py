"""The activities of each stream in the order in which they were launched."""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.nodes import NONE, Nodes


class IssuedActivities:
    """The activities of each stream in order, with their launch times."""

    def __init__(self, nodes: Nodes) -> None:
        launched = nodes.launch_start_ns
        self.streams: list[tuple[Ints, Ints]] = []
        for lane in np.unique(nodes.lane[nodes.n_host :]).tolist():
            on_lane = nodes.activities[nodes.lane[nodes.n_host :] == lane]
            on_lane = on_lane[np.argsort(nodes.start_ns[on_lane], kind="stable")]
            self.streams.append((on_lane, np.maximum.accumulate(launched[on_lane - nodes.n_host])))

    def find_last_before(self, times: Ints) -> Ints:
        """Return, per stream (row) and time (column), the last activity launched before; ``NONE`` without one."""
        found = np.full((len(self.streams), times.size), NONE)
        for row, (activities, launched) in enumerate(self.streams):
            index = np.searchsorted(launched, times) - 1
            found[row] = np.where(index >= 0, activities[index], NONE)
        return found
