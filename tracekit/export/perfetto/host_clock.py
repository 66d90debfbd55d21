"""The time of a CPU thread in a timeline: what was recorded between two calls moves with them."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.program import Program
from tracekit.replay.engine import Timeline


@dataclass(frozen=True, slots=True)
class HostClock:
    """Maps recorded times on CPU threads to those of a timeline.

    Known are the starts and ends of calls and marks. Between them a thread's time goes evenly; before the first and
    after the last it goes as recorded.

    Attributes:
        recorded_ns: Recorded times, in order, each thread in a range of its own.
        shown_ns: The same moments in the timeline; of each thread in order too.
        lane: Thread of each moment.
        width_ns: Length of a thread's range.
        starts_ns: Starts of the host nodes in the timeline.
        ends_ns: Ends of the host nodes.
    """

    recorded_ns: Ints
    shown_ns: Ints
    lane: Ints
    width_ns: int
    starts_ns: Ints
    ends_ns: Ints

    def map_starts(self, lane: Ints, at_ns: Ints) -> Ints:
        """Map the starts of spans; one at the same time as a call's belongs behind what ends then."""
        return self._map(lane, at_ns, "right")

    def map_ends(self, lane: Ints, at_ns: Ints) -> Ints:
        """Map the ends of spans; one at the same time as a call's belongs before what starts then."""
        return self._map(lane, at_ns, "left")

    def _map(self, lane: Ints, at_ns: Ints, side: str) -> Ints:
        at = lane * self.width_ns + np.clip(at_ns, 0, self.width_ns - 1)
        place = np.searchsorted(self.recorded_ns, at, side="right" if side == "right" else "left")
        before, after = np.clip(place - 1, 0, None), np.clip(place, None, self.lane.size - 1)
        has_before, has_after = (
            (self.lane[before] == lane) & (place > 0),
            (self.lane[after] == lane) & (place < self.lane.size),
        )
        since, until = at - self.recorded_ns[before], self.recorded_ns[after] - at
        from_before, from_after = self.shown_ns[before] + since, self.shown_ns[after] - until
        stretch = (self.shown_ns[after] - self.shown_ns[before]) / np.maximum(since + until, 1)
        within = self.shown_ns[before] + np.rint(since * stretch).astype(np.int64)
        return np.where(has_before & has_after, within, np.where(has_before, from_before, from_after))


def build_host_clock(program: Program, timeline: Timeline) -> HostClock:
    """Build the clock of a timeline of a program of one rank."""
    nodes, count = program.graph.nodes, program.graph.nodes.n_host
    width = int(nodes.end_ns.max(initial=0)) + 2
    node = np.concatenate([np.arange(count), np.arange(count)])
    is_start = np.repeat([False, True], count)
    recorded = np.concatenate([nodes.end_ns[:count], nodes.start_ns[:count]]) + nodes.lane[node] * width
    shown = np.concatenate([timeline.end_ns[:count], timeline.start_ns[:count]])
    order = np.lexsort((is_start, recorded))
    moments = pl.DataFrame({"lane": nodes.lane[node][order], "shown": shown[order]})
    in_order = moments.select(pl.col("shown").cum_max().over("lane"))["shown"].to_numpy()
    drawn = np.empty(2 * count, np.int64)
    drawn[order] = in_order
    return HostClock(recorded[order], in_order, nodes.lane[node][order], width, drawn[count:], drawn[:count])
