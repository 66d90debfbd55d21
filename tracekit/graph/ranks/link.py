"""Build one graph of all ranks: their graphs side by side on one clock, and the rendezvous between them.

Data structure only; the rules are those of :mod:`~tracekit.graph.ranks.match`.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import Edges
from tracekit.graph.graph import Graph, GraphParts, MeasuredWaits, assemble_graph
from tracekit.graph.nodes import NONE, Nodes
from tracekit.graph.ranks.match import Collectives, RendezvousPoints, build_rendezvous_edges, build_rendezvous_points


def link_ranks(ranks: Sequence[tuple[int, GraphParts]], collectives: Collectives) -> Graph:
    """Build the dependency graph of a job.

    Its nodes are those of all ranks, each group in the order of ``ranks``::

        | calls | rendezvous | step starts | step ends | activities |
    """
    found = build_rendezvous_points(collectives)
    layout = _NodeNumbering([parts.nodes for _, parts in ranks], len(found.names))
    node_of = [layout.number_nodes(i) for i in range(len(ranks))]
    nodes = _merge_nodes(ranks, collectives, found, layout)
    run_ns = np.zeros(layout.size, dtype=np.int64)
    for (_, parts), numbers in zip(ranks, node_of, strict=True):
        run_ns[numbers] = parts.run_ns
    run_ns[layout.cpu + collectives.table["row"].to_numpy()] = np.rint(
        collectives.table["transfer_us"].to_numpy() * 1e3
    )
    everything = [
        _renumber_edges(edge, numbers) for (_, p), numbers in zip(ranks, node_of, strict=True) for edge in p.edges
    ]
    everything.append(build_rendezvous_edges(found, layout.calls, layout.cpu, run_ns[layout.cpu :]))
    return assemble_graph(
        GraphParts(
            nodes=nodes,
            run_ns=run_ns,
            edges=tuple(everything),
            released=np.concatenate([n[p.released] for (_, p), n in zip(ranks, node_of, strict=True)]),
            waits=_merge_waits([parts.waits for _, parts in ranks], node_of, collectives, layout),
            recorded_waits=sum(p.recorded_waits for _, p in ranks),
            inferred_waits=sum(p.inferred_waits for _, p in ranks),
        )
    )


class _NodeNumbering:
    """Node numbers of each rank among the nodes of all ranks."""

    def __init__(self, ranks: Sequence[Nodes], meetings: int) -> None:
        self._ranks = ranks
        self._first_call = _accumulate_offsets([nodes.n_host - nodes.n_marks for nodes in ranks])
        self._first_mark = _accumulate_offsets([nodes.n_marks // 2 for nodes in ranks])
        self._first_activity = _accumulate_offsets([nodes.activities.size for nodes in ranks])
        self.calls = self._first_call[-1]
        self.marks = 2 * self._first_mark[-1]
        self.cpu = self.calls + meetings + self.marks
        self.size = self.cpu + self._first_activity[-1]

    def number_nodes(self, i: int) -> Ints:
        """Return the number of every node of the ``i``-th rank among all nodes."""
        nodes = self._ranks[i]
        starts = self.cpu - self.marks + self._first_mark[i]
        return np.concatenate(
            [
                self._first_call[i] + np.arange(nodes.n_host - nodes.n_marks),
                starts + np.arange(nodes.n_marks // 2),
                starts + self.marks // 2 + np.arange(nodes.n_marks // 2),
                self.cpu + self._first_activity[i] + np.arange(nodes.activities.size),
            ]
        )


def _accumulate_offsets(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))


def _renumber_edges(edges: Edges, node_of: Ints) -> Edges:
    src, dst = (2 * node_of[vertex // 2] + vertex % 2 for vertex in (edges.src, edges.dst))
    return Edges(edges.kind, src, dst, edges.lag_ns)


def _merge_nodes(
    ranks: Sequence[tuple[int, GraphParts]], collectives: Collectives, found: RendezvousPoints, layout: _NodeNumbering
) -> Nodes:
    """Merge the nodes of all ranks on one clock; each rendezvous lies at the last arrival that it needs."""
    every = [parts.nodes for _, parts in ranks]
    ahead = collectives.clock_offset_ns
    origins = [parts.nodes.origin_ns - ahead.get(rank, 0) for rank, parts in ranks]
    origin = min(origins)
    lanes = _accumulate_offsets(
        [int(max(nodes.lane.max(initial=-1), nodes.busy_lane.max(initial=-1))) + 1 for nodes in every]
    )
    start, end, lane = (np.full(layout.size, NONE) for _ in range(3))
    for i, nodes in enumerate(every):
        numbers = layout.number_nodes(i)
        start[numbers] = nodes.start_ns + origins[i] - origin
        end[numbers] = nodes.end_ns + origins[i] - origin
        lane[numbers] = np.where(nodes.lane == NONE, NONE, nodes.lane + lanes[i])
    meeting = layout.calls + found.arrival_point
    np.maximum.at(start, meeting, start[layout.cpu + found.arrival_row])
    np.maximum.at(end, meeting, start[layout.cpu + found.arrival_row])
    return Nodes(
        start_ns=start,
        end_ns=end,
        lane=lane,
        n_host=layout.cpu,
        n_marks=layout.marks,
        launcher=_merge_launchers(every, layout),
        names=_merge_names(every, found, layout),
        correlation=_merge_correlations(every, found, layout),
        is_nvidia=any(nodes.is_nvidia for nodes in every),
        busy_lane=np.concatenate([n.busy_lane + shift for n, shift in zip(every, lanes, strict=False)]),
        busy_start_ns=np.concatenate([n.busy_start_ns + o - origin for n, o in zip(every, origins, strict=True)]),
        busy_end_ns=np.concatenate([n.busy_end_ns + o - origin for n, o in zip(every, origins, strict=True)]),
        origin_ns=origin,
    )


def _merge_waits(
    every: Sequence[MeasuredWaits], node_of: Sequence[Ints], collectives: Collectives, layout: _NodeNumbering
) -> MeasuredWaits:
    """Merge the waits of all ranks, and add what their collectives waited for one another."""
    derived = np.zeros(layout.size, dtype=np.int64)
    for waits, numbers in zip(every, node_of, strict=True):
        derived[numbers] = waits.derived_ns
    waited_ns = np.rint(collectives.table["wait_us"].to_numpy() * 1e3).astype(np.int64)
    derived[layout.cpu + collectives.table["row"].to_numpy()] += waited_ns
    hidden = np.concatenate([waits.hidden_ns for waits in every])
    return MeasuredWaits(derived, hidden, np.concatenate([waits.stalled_ns for waits in every]))


def _merge_launchers(every: Sequence[Nodes], layout: _NodeNumbering) -> Ints:
    parts = [
        np.where(nodes.launcher == NONE, NONE, layout.number_nodes(i)[nodes.launcher]) for i, nodes in enumerate(every)
    ]
    return np.concatenate(parts)


def _merge_names(every: Sequence[Nodes], found: RendezvousPoints, layout: _NodeNumbering) -> pl.Series:
    calls = [nodes.names.head(nodes.n_host - nodes.n_marks) for nodes in every]
    return pl.concat([*calls, found.names.rename("name"), pl.repeat("mark", layout.marks, eager=True).rename("name")])


def _merge_correlations(every: Sequence[Nodes], found: RendezvousPoints, layout: _NodeNumbering) -> Ints:
    calls = [nodes.correlation[: nodes.n_host - nodes.n_marks] for nodes in every]
    return np.concatenate([*calls, np.full(len(found.names) + layout.marks, NONE)])
