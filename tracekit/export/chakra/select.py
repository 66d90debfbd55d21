"""Turn the dependency graph into Chakra's nodes, which start when all nodes that they depend on have ended.

The graph joins starts and ends. What a Chakra node can't say is split off as a node of no duration: the moment that
another one's start waits for, and the end of a call that waits for the GPU::

    call -> kernel              launch: the kernel's start waits for the call
    kernel -> kernel            order of a stream, an event between streams, or no room beside a large kernel
    call -> call's end          a synchronising call: its end also waits for
    kernel -> host work -> end  the kernel, and then the thread has to wake up
    call -> host work -> call   what the thread does between its calls
    call -> host work -> end    what a call still does once its kernel or copy has started
    wait -> wait -> call        until those nodes begin that depend on none, in turn: simulators have one CPU

Times are whole microseconds, Chakra's unit; a kernel takes at least one, as a node of none is a mere dependency.

Latencies between GPU activities and from a launch to its kernel aren't written: a simulator would take such nodes for
work. Those of the launch queue and of stalls aren't either, nor those between ranks, which a simulator derives; how
much later than the first a rank begins is, where collectives give the ranks one clock.
"""

from functools import cached_property

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.errors import StepError
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.ingest.formats.chakra import HOST_WORK_NAME, RETURN_SUFFIX
from tracekit.messages.traces import STEPS_WITHOUT_GPU_WORK
from tracekit.program import Program
from tracekit.replay.engine import Timeline

CAUSES = (
    EdgeKind.PROGRAM, EdgeKind.HANDOVER, EdgeKind.LAUNCH, EdgeKind.STREAM, EdgeKind.EVENT, EdgeKind.SYNC,
    EdgeKind.OCCUPIED,
)  # fmt: skip
HOST_WORK = (EdgeKind.PROGRAM, EdgeKind.HANDOVER, EdgeKind.SYNC)
"""Edges whose lag is work of a thread: between two calls, and after a wait for the GPU."""
BEGIN, BODY, END = range(3)
"""Parts of a node, of which most have only a body; part ``p`` of node ``i`` is numbered ``3 i + p``."""
UNTRACED_NAME, MARK_NAME = "before the first dependency", "step mark"


def build_node_table(program: Program, timeline: Timeline) -> pl.DataFrame:
    """Build the nodes of the chosen steps.

    Returns:
        In an order in which dependencies point back: ``rank``, ``id`` (from 1 in each rank), ``name``, ``start_us``,
        ``dur_us``, ``deps`` (ids), and ``activity`` (row of the kernel table; null for the host).

    Raises:
        StepError: Nothing ran on the GPU in the chosen steps.
    """
    rank = _find_ranks(program, timeline)
    parts = _Parts(timeline, rank, program.kernels["name"])
    table = pl.concat([*parts.list_parts(), *parts.list_host_work(), parts.list_untraced()], how="vertical_relaxed")
    table = table.sort("place", "part").with_columns(id=pl.int_range(1, pl.len() + 1).over("rank"))
    dependencies = _number_dependencies(table, parts.list_dependencies())
    is_activity = (pl.col("part") == 3 * pl.col("node") + BODY) & (pl.col("node") >= timeline.host_node_count)
    end_us = (pl.col("start_ns") + pl.col("dur_ns")) // 1000
    return table.join(dependencies, on="part", how="left", maintain_order="left").select(
        "rank",
        "id",
        "name",
        start_us=pl.col("start_ns") // 1000,
        dur_us=pl.max_horizontal(end_us - pl.col("start_ns") // 1000, pl.when(is_activity).then(1)),
        deps=pl.col("deps").fill_null(pl.lit([], dtype=pl.List(pl.Int64))),
        activity=pl.when(is_activity).then(pl.col("node") - timeline.host_node_count),
    )


def _find_ranks(program: Program, timeline: Timeline) -> Ints:
    """Return the rank of each node of the chosen steps, ``NONE`` of all others.

    Host nodes are those from the first launch of the steps to the last, and what follows until the GPU's end.
    """
    nodes = timeline.graph.nodes
    chosen = np.flatnonzero(program.is_in_chosen_steps.to_numpy())
    if not chosen.size:
        raise StepError(STEPS_WITHOUT_GPU_WORK())
    of_activity = program.kernels["rank"].to_numpy()
    rank = np.full(nodes.start_ns.size, NONE)
    rank[nodes.activities[chosen]] = of_activity[chosen]
    launched = nodes.launcher != NONE
    of_lane = np.full(int(nodes.lane.max(initial=0)) + 1, NONE)
    of_lane[nodes.lane[nodes.launcher[launched]]] = of_activity[launched]
    host = of_lane[nodes.lane[: nodes.n_host]]
    start, end = timeline.start_ns[: nodes.n_host], timeline.activity_end_ns
    for number in np.unique(of_activity[chosen]):
        rows = chosen[of_activity[chosen] == number]
        calls = nodes.launcher[rows][nodes.launcher[rows] != NONE]
        first = start[calls].min() if calls.size else timeline.activity_start_ns[rows].min()
        within = (host == number) & (start >= first) & (start <= end[rows].max())
        within[calls] = True
        rank[: nodes.n_host][within] = number
    return rank


class _Parts:
    """The parts of the chosen nodes, and the edges between them.

    Args:
        timeline: The replay.
        rank: Rank of each node; ``NONE`` where it isn't chosen.
        kernels: Names of the activities.
    """

    def __init__(self, timeline: Timeline, rank: Ints, kernels: pl.Series) -> None:
        graph = timeline.graph
        self._names = pl.concat([graph.nodes.names.replace("mark", MARK_NAME), kernels])
        self._timeline, self._rank, self._vertex = timeline, rank, graph.vertex
        src, dst = graph.node_vertex[graph.src], graph.node_vertex[graph.dst]
        lag, kind = timeline.lag_ns, graph.kind
        run = kind == EdgeKind.RUN
        self._run_ns = np.zeros(rank.size, dtype=np.int64)
        self._run_ns[src[run] // 2] = lag[run]
        of_rank = rank[src // 2]
        kept = np.isin(kind, CAUSES) & (of_rank != NONE) & (of_rank == rank[dst // 2])
        self._src, self._dst, self._lag, self._kind = src[kept], dst[kept], lag[kept].clip(0), kind[kept]
        launch = self._kind == EdgeKind.LAUNCH
        self._begins, self._ends = np.zeros(rank.size, np.bool_), np.zeros(rank.size, np.bool_)
        self._begins[self._src[~launch & (self._src % 2 == 0)] // 2] = True
        self._ends[self._dst[self._dst % 2 == 1] // 2] = True
        # What a call launches may start before it returns: what follows is the call's rest, which delays no kernel.
        until_launch_ns, early = self._run_ns.copy(), launch & (self._src % 2 == 0)
        np.minimum.at(until_launch_ns, self._src[early] // 2, self._lag[early])
        self._ends |= until_launch_ns < self._run_ns
        # A launch is a call's body: the end of a call that copies from pageable memory waits for its own copy.
        self._from = np.where(launch, 3 * (self._src // 2) + BODY, self._number_vertices(self._src))
        self._to = self._number_vertices(self._dst)
        self._works = np.isin(self._kind, HOST_WORK) & (self._lag > 0)
        self._begin_ns = self._align_begins(dst[kind == EdgeKind.RENDEZVOUS] // 2)
        self._rest_ns = np.where(self._ends, self._run_ns - until_launch_ns, 0)

    def _align_begins(self, waiting: Ints) -> Ints:
        """Return when each rank's file begins: with the first rank's, if its collectives wait for other ranks.

        Args:
            waiting: Nodes that do.
        """
        start, rank = self._timeline.start_ns, self._rank
        chosen = pl.DataFrame({"rank": rank, "start": start}).filter(pl.col("rank") != NONE)
        joined = np.unique(rank[waiting])
        first = (
            chosen.group_by("rank")
            .agg(pl.col("start").min())
            .with_columns(alone=pl.when(~pl.col("rank").is_in(joined)).then("rank"))
            .with_columns(pl.col("start").min().over("alone"))
        )
        begin_ns = np.zeros(int(rank.max(initial=0)) + 1, dtype=np.int64)
        begin_ns[first["rank"].to_numpy()] = first["start"].to_numpy()
        return begin_ns

    def _number_vertices(self, vertices: Ints) -> Ints:
        """Return the part that is a node's start, or its end."""
        node, is_end = vertices // 2, vertices % 2 == 1
        part = np.where(is_end, np.where(self._ends[node], END, BODY), np.where(self._begins[node], BEGIN, BODY))
        return 3 * node + part

    def list_parts(self) -> tuple[pl.DataFrame, ...]:
        """List the bodies, and the beginnings and ends that others wait for."""
        return (
            self._list(BEGIN, (self._rank != NONE) & self._begins),
            self._list(BODY, self._rank != NONE),
            self._list(END, (self._rank != NONE) & self._ends),
        )

    def _list(self, part: int, chosen: Bools) -> pl.DataFrame:
        node = np.flatnonzero(chosen)
        start = self._timeline.end_ns if part == END else self._timeline.start_ns
        vertex = 2 * node + (part == END)
        suffix = {BEGIN: " begins", BODY: "", END: RETURN_SUFFIX}[part]
        return self._build(
            part=3 * node + part,
            node=node,
            place=4 * self._vertex[vertex] + (part == BODY),
            start_ns=start[node],
            dur_ns=self._run_ns[node] - self._rest_ns[node] if part == BODY else np.zeros_like(node),
        ).with_columns(name=self._names.gather(node) + suffix)

    def list_host_work(self) -> tuple[pl.DataFrame, ...]:
        """List what threads do between two calls, after waits, and in blocking calls after the launch."""
        edge, rest = np.flatnonzero(self._works), self._rests
        vertex = self._src[edge]
        times = np.where(vertex % 2, self._timeline.end_ns[vertex // 2], self._timeline.start_ns[vertex // 2])
        between = self._build(
            part=self._number_work(edge),
            node=vertex // 2,
            place=4 * self._vertex[vertex] + 2,
            start_ns=times,
            dur_ns=self._lag[edge],
        )
        after = self._build(
            part=self._number_rest(rest),
            node=rest,
            place=4 * self._vertex[2 * rest] + 2,
            start_ns=self._timeline.start_ns[rest] + self._run_ns[rest] - self._rest_ns[rest],
            dur_ns=self._rest_ns[rest],
        )
        return tuple(table.with_columns(name=pl.lit(HOST_WORK_NAME)) for table in (between, after))

    def list_untraced(self) -> pl.DataFrame:
        """List the times until those nodes begin that depend on none."""
        waits = self._waits.filter(pl.col("waiter") == pl.col("node"))
        return self._build(
            part=waits["part"].to_numpy(),
            node=waits["node"].to_numpy(),
            place=np.arange(-len(waits), 0),
            start_ns=waits["begin"].to_numpy(),
            dur_ns=(waits["start"] - waits["begin"]).to_numpy(),
        ).with_columns(name=pl.lit(UNTRACED_NAME))

    @cached_property
    def _waits(self) -> pl.DataFrame:
        """The nodes that depend on none, with the wait before them, and the wait before that one.

        Returns:
            ``node``, ``start`` (ns), ``begin`` of the wait (ns), ``waiter`` (the node that it is named after), ``part``
            and ``before`` (parts).
        """
        node = self._find_sources()
        rank, start = self._rank[node], self._timeline.start_ns[node]
        sources = pl.DataFrame({"rank": rank, "node": node, "start": start, "since": self._begin_ns[rank]})
        waits = sources.group_by("rank", "start", "since").agg(waiter=pl.col("node").min()).sort("rank", "start")
        number = pl.col("waiter") + 3 * self._rank.size + self._src.size
        waits = waits.with_columns(
            begin=pl.col("start").shift(1).over("rank").fill_null(pl.col("since")),
            part=number,
            before=number.shift(1).over("rank"),
        ).filter(pl.col("start") > pl.col("begin"))
        return sources.join(waits.drop("since"), on=("rank", "start")).sort("rank", "start")

    def _number_work(self, edge: Ints) -> Ints:
        return 3 * self._rank.size + edge

    def _number_rest(self, node: Ints) -> Ints:
        part: Ints = 4 * self._rank.size + self._src.size + node
        return part

    @cached_property
    def _rests(self) -> Ints:
        chosen: Bools = (self._rank != NONE) & (self._rest_ns > 0)
        return np.flatnonzero(chosen)

    def _find_sources(self) -> Ints:
        is_source = self._rank != NONE
        is_source[self._dst[self._dst % 2 == 0] // 2] = False
        return np.flatnonzero(is_source)

    def list_dependencies(self) -> pl.DataFrame:
        """List which part waits for which."""
        edge, rest, waits = np.flatnonzero(self._works), self._rests, self._waits
        work, after = self._number_work(edge), self._number_rest(rest)
        begins, ends = np.flatnonzero(self._begins), np.flatnonzero(self._ends)
        chain = waits.drop_nulls("before")
        pairs = (
            (self._from[~self._works], self._to[~self._works]),
            (self._from[edge], work),
            (work, self._to[edge]),
            (3 * begins + BEGIN, 3 * begins + BODY),
            (3 * ends + BODY, 3 * ends + END),
            (3 * rest + BODY, after),
            (after, 3 * rest + END),
            (waits["part"].to_numpy(), self._number_vertices(2 * waits["node"].to_numpy())),
            (chain["before"].to_numpy(), chain["part"].to_numpy()),
        )
        src, dst = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
        return pl.DataFrame({"on": src, "part": dst})

    def _build(self, *, part: Ints, node: Ints, place: Ints, start_ns: Ints, dur_ns: Ints) -> pl.DataFrame:
        rank = self._rank[node]
        return pl.DataFrame(
            {"part": part, "node": node, "rank": rank, "place": place, "start_ns": start_ns, "dur_ns": dur_ns}
        )


def _number_dependencies(table: pl.DataFrame, dependencies: pl.DataFrame) -> pl.DataFrame:
    """Return the ids that each part depends on; those left out of the table are dropped."""
    ids = table.select("part", "id")
    return (
        dependencies.join(ids.rename({"part": "on", "id": "deps"}), on="on")
        .group_by("part")
        .agg(pl.col("deps").unique().sort())
    )
