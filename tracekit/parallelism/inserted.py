"""Insert kernels into a program that its trace lacks but that the job would have in another layout."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.build import DEFAULT_LAG_NS
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.edit import compute_edge_destinations, compute_edge_sources, insert_activities, insert_edges
from tracekit.graph.nodes import NONE
from tracekit.graph.semantics import DEFAULT_GAP_NS
from tracekit.messages import Message
from tracekit.messages import layouts as told
from tracekit.parallelism.stragglers import HOST_SPEED_PCT
from tracekit.program import Program
from tracekit.schema import KERNELS

WORK_FROM_ASSUMED = "assumed"
"""Value of ``work_from`` for inserted kernels."""

NO_NODE = -1
"""Stands for "no such graph node"."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """A program with inserted kernels.

    Attributes:
        program: The program. The inserted kernels take no time yet: ``relayout`` and ``collectives`` set their times.
        note: What was assumed.
    """

    program: Program
    note: Message


def append_kernels(program: Program, rows: pl.DataFrame, extended_graph: Graph) -> Program:
    """Append inserted kernels to a program.

    Args:
        program: The program.
        rows: The known columns of these kernels.
        extended_graph: The graph with one activity for each, after all others and in the order of ``rows``.
    """
    put_in = {
        "rank": program.trace.rank or 0,
        "kind": "kernel",
        "share": 1.0,
        "work_from": WORK_FROM_ASSUMED,
        "dur_ns": 0,
        "wait_ns": 0,
    }
    whole = rows.with_columns(pl.lit(value).alias(name) for name, value in put_in.items())
    typed = whole.select(pl.col(name).cast(KERNELS.dtypes.get(name, pl.Int64)) for name in whole.columns)
    kernels = pl.concat([program.kernels, typed], how="diagonal_relaxed").select(program.kernels.columns)
    factor = np.append(program.kernel_factor, np.ones(rows.height))
    return replace(program.replace_tables(kernels=kernels), graph=extended_graph, kernel_factor=factor)


def build_collective_columns(program: Program, group: str | pl.Expr) -> dict[str, pl.Expr]:
    """Return the kernel-table columns that inserted collectives have in common.

    They have one rank, so that they take no time, and a stream of their own.

    Args:
        program: The program.
        group: Description of the process group, such as ``DP_GROUP``.
    """
    stream = pl.lit(program.kernels["stream"].max(), pl.Int64) + 1
    called = group if isinstance(group, pl.Expr) else pl.lit(group)
    names = {"process_group": called, "group_description": called, "group_ranks": pl.lit("[]")}
    return {"family": pl.lit("collective"), "ranks": pl.lit(1), "stream": stream, **names}


def name_exchanges() -> dict[str, pl.Expr]:
    """Return the names of inserted collectives' kernels and ops, by their kind: all-gather of c10d::all_gather."""
    kind = pl.col("collective")
    return {"name": kind.str.replace("_", "-"), "op": pl.lit("c10d::") + kind}


def find_stream_neighbours(graph: Graph) -> tuple[Ints, Ints]:
    """Return the next and the previous activity of each node on its stream; ``NO_NODE`` where there is none."""
    earlier, later = graph.nodes.find_neighbours(graph.nodes.activities)
    follows, precedes = np.full((2, graph.nodes.start_ns.size), NO_NODE)
    follows[earlier], precedes[later] = later, earlier
    return follows, precedes


def add_host_time(graph: Graph, before: Ints, behind: Ints, cost_ns: int | Ints) -> Graph:
    """Add host time to some nodes of a graph.

    Args:
        graph: The graph.
        before: Host nodes that start ``cost_ns`` later, once for each time that they are listed.
        behind: Host nodes after which the host needs ``cost_ns`` more, once for each time that they are listed.
        cost_ns: Host time; of each listed node, or of all.
    """
    earlier, later = np.zeros((2, graph.nodes.start_ns.size), dtype=np.int64)
    for sums, listed in ((earlier, before), (later, behind)):
        if listed.size:
            np.add.at(sums, listed, cost_ns)
    src, dst = compute_edge_sources(graph), compute_edge_destinations(graph)
    on_host = np.isin(graph.kind, (EdgeKind.PROGRAM, EdgeKind.HANDOVER))
    more = np.where(dst % 2 == 0, earlier[dst // 2], 0) + np.where(src % 2 == 1, later[src // 2], 0)
    return replace(graph, lag_ns=graph.lag_ns + np.where(on_host, more, 0))


def find_launch_calls(graph: Graph, activity: Ints) -> Ints:
    """Find the host call that launches each activity.

    It is ``NONE`` for activities of CUDA graphs, and where what-if edits set the call's time to zero.
    """
    nodes = graph.nodes
    call = nodes.launcher[activity - nodes.n_host]
    launches = np.bincount(nodes.launcher[nodes.launcher != NONE], minlength=nodes.n_host)
    takes_time = np.zeros(nodes.start_ns.size, dtype=np.bool_)
    takes_time[compute_edge_destinations(graph)[(graph.kind == EdgeKind.RUN) & (graph.lag_ns > 0)] // 2] = True
    return np.where((call != NONE) & (launches[call] == 1) & takes_time[call], call, NONE)


def describe_host_cost(graph: Graph, behind: Ints, cost_ns: int) -> Message:
    """Describe the host cost of such collectives.

    Args:
        graph: The graph.
        behind: Activities that the collectives follow.
        cost_ns: Host cost of one collective, where the activity before it has a launch call of its own.
    """
    if (find_launch_calls(graph, behind) == NONE).all():
        return told.INSERTED_WITHOUT_HOST_COST()
    return told.INSERTED_HOST_COST(launch_us=cost_ns / 1e3, host_pct=HOST_SPEED_PCT)


def insert_in_stream(graph: Graph, behind: Ints, cost_ns: int | Ints, before: Ints | None = None) -> Graph:
    """Insert one collective after each of some activities; the next kernel on their stream waits for it, or another.

    ::

        compute stream | behind |            | next kernel
        new stream              | collective |
        host           | launch behind | launch collective (cost_ns) | ...

    Args:
        graph: The graph.
        behind: Activities, in order of launch.
        cost_ns: Host cost of each collective, or of all, where the activity before it has a launch call of its own.
        before: The activity that waits for each, ``NO_NODE`` for none; None for the next on the stream.
    """
    nodes = graph.nodes
    call = find_launch_calls(graph, behind)
    launched = call != NONE
    cost_ns = np.broadcast_to(cost_ns, behind.shape)[launched]
    added = nodes.start_ns.size + np.arange(behind.size)
    host = add_host_time(graph, call[:0], call[launched], cost_ns)
    grown = insert_activities(host, np.full(behind.size, nodes.lane.max() + 1), nodes.end_ns[behind])
    following = find_stream_neighbours(graph)[0][behind] if before is None else before
    awaited = following != NO_NODE
    edges = (
        (EdgeKind.PROGRAM, to_end_vertices(call[launched]), to_start_vertices(added[launched]), cost_ns),
        (EdgeKind.EVENT, to_end_vertices(behind), to_start_vertices(added), DEFAULT_LAG_NS),
        (EdgeKind.EVENT, to_end_vertices(added[awaited]), to_start_vertices(following[awaited]), DEFAULT_LAG_NS),
        (EdgeKind.STREAM, to_end_vertices(added[:-1]), to_start_vertices(added[1:]), DEFAULT_GAP_NS),
    )
    return insert_edges(grown, *(Edges(kind, src, dst, np.full(src.size, lag_ns)) for kind, src, dst, lag_ns in edges))
