"""One graph of all ranks: theirs side by side on one clock, and the meetings between them."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import Edges
from tracekit.graph.graph import Graph, Parts, assemble
from tracekit.graph.nodes import NONE, Nodes
from tracekit.graph.ranks.join import Collectives
from tracekit.graph.ranks.rendezvous import Meetings, edges, meetings


def link_ranks(ranks: Sequence[tuple[int, Parts]], collectives: Collectives) -> Graph:
    """The dependency graph of a job.

    Its nodes are the calls of all ranks, the meetings, the starts of all ranks' steps, their ends, and the activities
    of all ranks, each in the order of ``ranks``.

    Args:
        ranks: Every rank's number and parts.
        collectives: Where they meet.
    """
    found = meetings(collectives)
    layout = _Layout([parts.nodes for _, parts in ranks], len(found.names))
    node_of = [layout.numbers(i) for i in range(len(ranks))]
    nodes = _nodes(ranks, collectives, found, layout)
    run_ns = np.zeros(layout.size, dtype=np.int64)
    for (_, parts), numbers in zip(ranks, node_of, strict=True):
        run_ns[numbers] = parts.run_ns
    run_ns[layout.cpu + collectives.table["row"].to_numpy()] = np.rint(
        collectives.table["transfer_us"].to_numpy() * 1e3
    )
    everything = [
        _renumbered(edge, numbers) for (_, p), numbers in zip(ranks, node_of, strict=True) for edge in p.edges
    ]
    everything.append(edges(found, layout.calls, layout.cpu, run_ns[layout.cpu :]))
    return assemble(
        Parts(
            nodes=nodes,
            run_ns=run_ns,
            edges=tuple(everything),
            released=np.concatenate([n[p.released] for (_, p), n in zip(ranks, node_of, strict=True)]),
            waited_ns=sum(p.waited_ns for _, p in ranks) + _waited_ns(collectives),
            recorded_waits=sum(p.recorded_waits for _, p in ranks),
            inferred_waits=sum(p.inferred_waits for _, p in ranks),
            hidden_ns=sum(p.hidden_ns for _, p in ranks),
            stalled_ns=sum(p.stalled_ns for _, p in ranks),
        )
    )


def _waited_ns(collectives: Collectives) -> int:
    return int(np.rint(collectives.table["wait_us"].to_numpy() * 1e3).sum())


class _Layout:
    """Where each rank's nodes come to lie among those of all."""

    def __init__(self, ranks: Sequence[Nodes], meetings: int) -> None:
        self._ranks = ranks
        self._first_call = _offsets([nodes.cpu - nodes.marks for nodes in ranks])
        self._first_mark = _offsets([nodes.marks // 2 for nodes in ranks])
        self._first_activity = _offsets([nodes.activities.size for nodes in ranks])
        self.calls = self._first_call[-1]
        self.marks = 2 * self._first_mark[-1]
        self.cpu = self.calls + meetings + self.marks
        self.size = self.cpu + self._first_activity[-1]

    def numbers(self, i: int) -> Ints:
        """The number of every node of the ``i``-th rank among all."""
        nodes = self._ranks[i]
        starts = self.cpu - self.marks + self._first_mark[i]
        return np.concatenate(
            [
                self._first_call[i] + np.arange(nodes.cpu - nodes.marks),
                starts + np.arange(nodes.marks // 2),
                starts + self.marks // 2 + np.arange(nodes.marks // 2),
                self.cpu + self._first_activity[i] + np.arange(nodes.activities.size),
            ]
        )


def _offsets(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))


def _renumbered(edges: Edges, node_of: Ints) -> Edges:
    src, dst = (2 * node_of[vertex // 2] + vertex % 2 for vertex in (edges.src, edges.dst))
    return Edges(edges.kind, src, dst, edges.lag_ns)


def _nodes(ranks: Sequence[tuple[int, Parts]], collectives: Collectives, found: Meetings, layout: _Layout) -> Nodes:
    """The nodes of all ranks on one clock, with the meetings at the last arrival that they need."""
    every = [parts.nodes for _, parts in ranks]
    ahead = collectives.ahead_ns
    origins = [parts.nodes.origin_ns - ahead.get(rank, 0) for rank, parts in ranks]
    origin = min(origins)
    lanes = _offsets([int(max(nodes.lane.max(initial=-1), nodes.cover_lane.max(initial=-1))) + 1 for nodes in every])
    start, end, lane = (np.full(layout.size, NONE) for _ in range(3))
    for i, nodes in enumerate(every):
        numbers = layout.numbers(i)
        start[numbers] = nodes.start_ns + origins[i] - origin
        end[numbers] = nodes.end_ns + origins[i] - origin
        lane[numbers] = np.where(nodes.lane == NONE, NONE, nodes.lane + lanes[i])
    meeting = layout.calls + found.meets
    np.maximum.at(start, meeting, start[layout.cpu + found.row])
    np.maximum.at(end, meeting, start[layout.cpu + found.row])
    return Nodes(
        start_ns=start,
        end_ns=end,
        lane=lane,
        cpu=layout.cpu,
        marks=layout.marks,
        launcher=_launchers(every, layout),
        names=_names(every, found, layout),
        correlation=_correlations(every, found, layout),
        on_nvidia=any(nodes.on_nvidia for nodes in every),
        cover_lane=np.concatenate([n.cover_lane + shift for n, shift in zip(every, lanes, strict=False)]),
        cover_start_ns=np.concatenate([n.cover_start_ns + o - origin for n, o in zip(every, origins, strict=True)]),
        cover_end_ns=np.concatenate([n.cover_end_ns + o - origin for n, o in zip(every, origins, strict=True)]),
        origin_ns=origin,
    )


def _launchers(every: Sequence[Nodes], layout: _Layout) -> Ints:
    parts = [np.where(nodes.launcher == NONE, NONE, layout.numbers(i)[nodes.launcher]) for i, nodes in enumerate(every)]
    return np.concatenate(parts)


def _names(every: Sequence[Nodes], found: Meetings, layout: _Layout) -> pl.Series:
    calls = [nodes.names.head(nodes.cpu - nodes.marks) for nodes in every]
    return pl.concat([*calls, found.names.rename("name"), pl.repeat("mark", layout.marks, eager=True).rename("name")])


def _correlations(every: Sequence[Nodes], found: Meetings, layout: _Layout) -> Ints:
    calls = [nodes.correlation[: nodes.cpu - nodes.marks] for nodes in every]
    return np.concatenate([*calls, np.full(len(found.names) + layout.marks, NONE)])
