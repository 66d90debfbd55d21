"""Compress the graph of one rank to what other ranks can see of it: when it arrives at collectives, and when it leaves.

The vertices that stay are the rendezvous that the rank waits for, its arrivals at collectives, and the few vertices in
which paths from several of these join. The longest path between two of them becomes one edge::

    rendezvous 0 --(run, launch, stream: 4 edges, 31 us)--> arrival 1 --> rendezvous 1 --(9 edges, 70 us)--> arrival 2

Times are whole nanoseconds, in which maximum and sum are exact: a replay of compressed graphs gives the same arrivals,
bit for bit, as one of the whole graph. Which vertices and edges stay depends on the edges of the graph alone, not on
how long they are; so replays with other kernel times share them, and each has a row of weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.arrays import Ints
from tracekit.compiled import compile_lazily
from tracekit.graph import Graph
from tracekit.graph.graph import sort_topologically
from tracekit.replay.engine import compute_earliest_times

NEVER_NS = -(1 << 61)
"""Before all times: the constant part of a vertex that nothing delays."""
MAX_SOURCES = 6
"""Vertices that stay, on which a vertex may depend, before it stays itself. More make fewer vertices of more edges."""


@dataclass(frozen=True, slots=True)
class CompressedRank:
    """What is left of one rank's graph.

    Vertices are numbered: first the rendezvous, then all others in topological order.

    Attributes:
        rendezvous: Number of rendezvous that the rank waits for.
        arrival: Vertex of each arrival at a rendezvous.
        src: Source of each edge.
        dst: Destination of each edge, ascending.
        lag_ns: Least distance along each edge; a row per replay.
        release_ns: Earliest time of each vertex regardless of its edges; a row per replay.
    """

    rendezvous: int
    arrival: Ints
    src: Ints
    dst: Ints
    lag_ns: Ints
    release_ns: Ints

    @property
    def vertices(self) -> int:
        """Number of vertices that are left."""
        return int(self.release_ns.shape[1])


@dataclass(frozen=True, slots=True)
class RankLinks:
    """Where a rank meets others.

    Attributes:
        arrival_activity: Activity of each arrival at a rendezvous.
        end_activity: Activity that each rendezvous lets end; one per rendezvous that the rank waits for.
    """

    arrival_activity: Ints
    end_activity: Ints


@dataclass(frozen=True, slots=True)
class JobLinks:
    """Where a part of a job meets the others, in the numbers of the job.

    Attributes:
        activities: Its activities that do.
        rendezvous: The job's number of each rendezvous that the part waits for.
        arrivals: The job's number of the rendezvous of each of its arrivals.
    """

    activities: RankLinks
    rendezvous: Ints
    arrivals: Ints

    def drop_ends(self, rows: Ints) -> "JobLinks":
        """Return the links without the waiting of some activities, which still arrive."""
        kept = ~np.isin(self.activities.end_activity, rows)
        ends = replace(self.activities, end_activity=self.activities.end_activity[kept])
        return replace(self, activities=ends, rendezvous=self.rendezvous[kept])

    def drop(self, rows: Ints) -> "JobLinks":
        """Return the links without some activities."""
        left = self.drop_ends(rows)
        kept = ~np.isin(left.activities.arrival_activity, rows)
        arrive = replace(left.activities, arrival_activity=left.activities.arrival_activity[kept])
        return replace(left, activities=arrive, arrivals=left.arrivals[kept])


@dataclass(frozen=True, slots=True)
class RankReplay:
    """One replay of a rank.

    Attributes:
        lag_ns: Least distance along every edge.
        release_ns: Earliest time of every vertex.
        run_ns: How long after its rendezvous each activity ends that waits for one.
    """

    lag_ns: Ints
    release_ns: Ints
    run_ns: Ints


def compress_rank(graph: Graph, links: RankLinks, replays: Sequence[RankReplay]) -> CompressedRank:
    """Compress the graph of one rank.

    Args:
        graph: The rank's graph, without its rendezvous.
        links: Where it meets other ranks.
        replays: What differs from replay to replay.
    """
    activities = graph.nodes.activities
    waits, seen = np.full(graph.vertex.size, -1), np.zeros(graph.vertex.size, np.int64)
    waits[graph.vertex[2 * activities[links.end_activity] + 1]] = np.arange(links.end_activity.size)
    arrival = graph.vertex[2 * activities[links.arrival_activity]]
    seen[arrival] = 1
    found = [_compress(graph, waits, seen, one) for one in replays]
    src, dst, _, release, vertex = found[0]
    count = links.end_activity.size
    needed = np.zeros(release.size, np.int64)
    needed[:count] = needed[vertex[arrival]] = 1
    _mark_needed(src.size, src, dst, needed)
    number, kept_edge, kept = np.cumsum(needed) - 1, needed[dst] == 1, needed == 1
    return CompressedRank(
        rendezvous=count,
        arrival=number[vertex[arrival]],
        src=number[src[kept_edge]],
        dst=number[dst[kept_edge]],
        lag_ns=np.stack([each[2][kept_edge] for each in found]),
        release_ns=np.stack([each[3][kept] for each in found]),
    )


def _compress(graph: Graph, waits: Ints, seen: Ints, one: RankReplay) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Compress for one replay; return source, destination and lag of the edges, releases, and the vertices' numbers."""
    vertices, count = graph.vertex.size, one.run_ns.size
    root, lag = np.empty((2, vertices * MAX_SOURCES), np.int64)
    sources, constant = np.empty((2, vertices), np.int64)
    src, dst, weight = np.empty((3, (graph.src.size + count) * MAX_SOURCES + 1), np.int64)
    release, number = np.full(count + vertices, NEVER_NS), np.full(vertices, -1)
    # The sources of a vertex, merged: as many as its edges can bring.
    edges_in = int(np.diff(graph.first).max(initial=0)) + 1
    merged_root, merged_lag = np.empty((2, edges_in * MAX_SOURCES), np.int64)
    sizes = np.zeros(2, np.int64)
    _follow_sources(
        vertices, graph.first, graph.src, one.lag_ns, one.release_ns, waits, one.run_ns, seen, count, MAX_SOURCES,
        NEVER_NS, root, lag, sources, constant, merged_root, merged_lag, src, dst, weight, release, number, sizes,
    )  # fmt: skip
    kept, edges = sizes
    return src[:edges], dst[:edges], weight[:edges], release[:kept], number


@compile_lazily
def _follow_sources(  # noqa: C901 - one pass, in which calls can't be made
    vertices: int,
    first: Ints,
    edge_src: Ints,
    edge_lag: Ints,
    release: Ints,
    waits: Ints,
    run: Ints,
    seen: Ints,
    rendezvous: int,
    most: int,
    never: int,
    root: Ints,
    lag: Ints,
    sources: Ints,
    constant: Ints,
    merged_root: Ints,
    merged_lag: Ints,
    out_src: Ints,
    out_dst: Ints,
    out_lag: Ints,
    out_release: Ints,
    number: Ints,
    sizes: Ints,
) -> int:  # pragma: no cover - compiled
    kept, edges = rendezvous, 0
    for vertex in range(vertices):
        count, least = 0, release[vertex]
        if waits[vertex] >= 0:
            merged_root[0], merged_lag[0] = waits[vertex], run[waits[vertex]]
            count = 1
        for edge in range(first[vertex], first[vertex + 1]):
            source, length = edge_src[edge], edge_lag[edge]
            if constant[source] > never:
                least = max(least, constant[source] + length)
            for place in range(source * most, source * most + sources[source]):
                at = 0
                while at < count and merged_root[at] != root[place]:
                    at += 1
                if at == count:
                    merged_root[at], merged_lag[at] = root[place], lag[place] + length
                    count += 1
                else:
                    merged_lag[at] = max(merged_lag[at], lag[place] + length)
        if seen[vertex] == 1 or count > most:
            for at in range(count):
                out_src[edges], out_dst[edges], out_lag[edges] = merged_root[at], kept, merged_lag[at]
                edges += 1
            out_release[kept], number[vertex] = least, kept
            root[vertex * most], lag[vertex * most] = kept, 0
            sources[vertex], constant[vertex] = 1, never
            kept += 1
        else:
            for at in range(count):
                root[vertex * most + at], lag[vertex * most + at] = merged_root[at], merged_lag[at]
            sources[vertex], constant[vertex] = count, least
    sizes[0], sizes[1] = kept, edges
    return 0


@compile_lazily
def _mark_needed(edges: int, src: Ints, dst: Ints, needed: Ints) -> int:  # pragma: no cover - compiled
    for back in range(edges):
        edge = edges - 1 - back
        if needed[dst[edge]] == 1:
            needed[src[edge]] = 1
    return 0


class CompressedJob:
    """The compressed graphs of all ranks, joined at their rendezvous.

    Args:
        ranks: The ranks.
        rendezvous: For each rank, the rendezvous of the job that it waits for.
        arrivals: For each rank, the rendezvous of the job at which each of its arrivals is.
        count: Number of rendezvous of the job.

    Attributes:
        dropped: Arrivals that contradict others and were left out.
    """

    def __init__(
        self, ranks: Sequence[CompressedRank], rendezvous: Sequence[Ints], arrivals: Sequence[Ints], count: int
    ) -> None:
        self._ranks, self._count = ranks, count
        numbers, offset = [], count
        for rank, own in zip(ranks, rendezvous, strict=True):
            others = np.arange(rank.vertices - rank.rendezvous) + offset
            numbers.append(np.concatenate([own, others]))
            offset += others.size
        sources = [number[rank.src] for rank, number in zip(ranks, numbers, strict=True)]
        met = [number[rank.arrival] for rank, number in zip(ranks, numbers, strict=True)]
        src = np.concatenate([*sources, *met])
        dst = np.concatenate([*(n[rank.dst] for rank, n in zip(ranks, numbers, strict=True)), *arrivals])
        self._without_lag = sum(each.size for each in met)
        droppable = np.arange(src.size) >= src.size - self._without_lag
        self._order = sort_topologically(offset, src, dst, droppable)
        self.dropped = src.size - self._order.edges.size
        self._src = self._order.vertex[src[self._order.edges]]

    def replay(self, which: int) -> Ints:
        """Return when each rendezvous of the job takes place, in nanoseconds.

        Args:
            which: The row of the ranks' weights.
        """
        zeros = np.zeros(self._without_lag, np.int64)
        lag = np.concatenate([*(rank.lag_ns[which] for rank in self._ranks), zeros])[self._order.edges]
        released = [rank.release_ns[which, rank.rendezvous :] for rank in self._ranks]
        release = np.empty(self._order.vertex.size, np.int64)
        release[self._order.vertex] = np.concatenate([np.zeros(self._count, np.int64), *released])
        times = compute_earliest_times(self._order.first, self._src, lag, release)
        return times[self._order.vertex[: self._count]]


def release_ends(graph: Graph, links: RankLinks, met_ns: Ints, run_ns: Ints) -> Graph:
    """Return a rank's graph whose collectives end no earlier than their rendezvous allow.

    Args:
        graph: The rank's graph, without its rendezvous.
        links: Where it meets other ranks.
        met_ns: When each rendezvous takes place that the rank waits for.
        run_ns: How long after it the rank's collective ends.
    """
    release_ns = graph.release_ns.copy()
    end = graph.vertex[2 * graph.nodes.activities[links.end_activity] + 1]
    release_ns[end] = np.maximum(release_ns[end], met_ns + run_ns)
    return replace(graph, release_ns=release_ns)
