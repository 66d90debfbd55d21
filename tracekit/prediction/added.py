"""Kernels that a job has in another layout and its trace doesn't hold: how they are put into a run."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.change import destinations, sources
from tracekit.graph.edges import EdgeKind
from tracekit.replay.run import Run
from tracekit.schema import KERNELS

ASSUMED = "assumed"
"""``work_from`` of kernels that the trace doesn't hold."""

NEVER = -1
"""No node."""


@dataclass(frozen=True, slots=True)
class Added:
    """A run with kernels that its trace doesn't hold.

    Attributes:
        run: With these kernels, which take no time yet: ``scaling`` and ``collectives`` give them theirs.
        note: What was assumed, one clause.
    """

    run: Run
    note: str


def with_kernels(run: Run, rows: pl.DataFrame, graph: Graph) -> Run:
    """``run`` with kernels that the trace doesn't hold.

    Args:
        run: The measured run.
        rows: What is known of them, in columns of the kernel table.
        graph: With an activity for each, behind the others, in their order.
    """
    put_in = {"kind": "kernel", "share": 1.0, "work_from": ASSUMED, "dur_ns": 0, "wait_ns": 0}
    whole = rows.with_columns(pl.lit(value).alias(name) for name, value in put_in.items())
    typed = whole.select(pl.col(name).cast(KERNELS.dtypes.get(name, pl.Int64)) for name in whole.columns)
    kernels = pl.concat([run.kernels, typed], how="diagonal_relaxed").select(run.kernels.columns)
    factor = None if run.kernel_factor is None else np.append(run.kernel_factor, np.ones(rows.height))
    return replace(run, kernels=kernels, graph=graph, kernel_factor=factor)


def communicates(run: Run, group: str | pl.Expr) -> dict[str, pl.Expr]:
    """Columns of the kernel table that collectives put into a run share: one rank's, on a stream of their own.

    Args:
        run: The measured run.
        group: What its ranks are, in words that ``layout`` tells the group's role by.
    """
    stream = pl.lit(run.kernels["stream"].max(), pl.Int64) + 1
    called = group if isinstance(group, pl.Expr) else pl.lit(group)
    names = {"process_group": called, "group_description": called, "group_ranks": pl.lit("[]")}
    return {"family": pl.lit("collective"), "ranks": pl.lit(1), "stream": stream, **names}


def beside(graph: Graph) -> tuple[Ints, Ints]:
    """The activity behind each node on its stream, and the one before it; ``NEVER`` where there is none."""
    earlier, later = graph.nodes.neighbours(graph.nodes.activities)
    follows, precedes = np.full((2, graph.nodes.start_ns.size), NEVER)
    follows[earlier], precedes[later] = later, earlier
    return follows, precedes


def slower_host(graph: Graph, before: Ints, behind: Ints, cost_ns: int) -> Graph:
    """``graph`` in which the CPU needs ``cost_ns`` more, before some of its nodes and behind others.

    Args:
        graph: The graph.
        before: CPU nodes, once for each time that it costs that much.
        behind: The same.
        cost_ns: CPU time.
    """
    earlier, later = np.zeros((2, graph.nodes.start_ns.size), dtype=np.int64)
    np.add.at(earlier, before, cost_ns)
    np.add.at(later, behind, cost_ns)
    src, dst = sources(graph), destinations(graph)
    on_host = np.isin(graph.kind, (EdgeKind.PROGRAM, EdgeKind.HANDOVER))
    more = np.where(dst % 2 == 0, earlier[dst // 2], 0) + np.where(src % 2 == 1, later[src // 2], 0)
    return replace(graph, lag_ns=graph.lag_ns + np.where(on_host, more, 0))
