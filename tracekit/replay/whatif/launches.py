"""Launches: which calls launch certain kernels, which calls wait, and kernels that come without being launched."""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools
from tracekit.graph import spans
from tracekit.graph.change import destinations, without
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.graph.streams import MAX_GAP_NS
from tracekit.replay.run import Run
from tracekit.replay.whatif.cpu import of_calls, share_within, times_factor
from tracekit.replay.whatif.edited import with_graph
from tracekit.trace import RankTrace


def calls_of(run: Run, kernels: Bools) -> Bools:
    """CPU nodes that launch some of these kernels and no others."""
    nodes = run.graph.nodes
    launched = nodes.launcher != NONE
    mine, others = np.zeros(nodes.cpu, dtype=np.bool_), np.zeros(nodes.cpu, dtype=np.bool_)
    mine[nodes.launcher[launched & kernels]] = True
    others[nodes.launcher[launched & ~kernels]] = True
    only: Bools = mine & ~others
    return only


def blocking(run: Run) -> Bools:
    """CPU nodes that wait for the GPU."""
    return reached_by(run, EdgeKind.SYNC)


def reached_by(run: Run, kind: EdgeKind) -> Bools:
    """CPU nodes that an edge of a kind leads to."""
    found = np.zeros(run.graph.nodes.start_ns.size, dtype=np.bool_)
    found[destinations(run.graph)[run.graph.kind == kind] // 2] = True
    return found[: run.graph.nodes.cpu]


def edges_to(run: Run, kind: EdgeKind, kernels: Bools) -> Bools:
    """Edges of a kind that lead to the start of certain kernels."""
    nodes = np.zeros(run.graph.nodes.start_ns.size, dtype=np.bool_)
    nodes[run.graph.nodes.cpu :] = kernels
    found: Bools = (run.graph.kind == kind) & nodes[destinations(run.graph) // 2]
    return found


def without_launches(run: Run, kernels: Bools) -> Run:
    """``run`` in which kernels come without being launched, each right after the one before it on its stream.

    Their calls cost nothing any more, and neither do ops that launch nothing else, with the waits in them.
    """
    nodes = run.graph.nodes
    in_ops = spans.of_rows(_ops_of(run, kernels), run.ranks, nodes, run.kernels)
    waits = np.flatnonzero(blocking(run))
    gone = calls_of(run, kernels)
    gone[waits] |= in_ops.contain(nodes.lane[waits], nodes.start_ns[waits])
    graph = times_factor(run.graph, 1 - share_within(run.graph, in_ops))
    close = edges_to(run, EdgeKind.STREAM, kernels) & (graph.lag_ns < MAX_GAP_NS)
    free = close | of_calls(graph, EdgeKind.RUN, gone)
    graph = replace(graph, lag_ns=np.where(free, 0, graph.lag_ns))
    dropped = edges_to(run, EdgeKind.LAUNCH, kernels)
    for kind in (EdgeKind.SYNC, EdgeKind.QUEUE):
        dropped |= of_calls(graph, kind, gone)
    return with_graph(run, without(graph, dropped))


def _ops_of(run: Run, kernels: Bools) -> list[pl.DataFrame]:
    """Per rank, rows of the ops table that launch these kernels and no others."""
    return [_ops_of_rank(rank, run.kernels["op_row"], kernels, spans.of_rank(run.kernels, rank)) for rank in run.ranks]


def _ops_of_rank(rank: RankTrace, op_row: pl.Series, kernels: Bools, mine: Bools) -> pl.DataFrame:
    rows = pl.DataFrame({"row": op_row, "meant": kernels}).filter(pl.Series(mine)).drop_nulls("row")
    meant = rows.group_by("row").agg(pl.col("meant").all()).filter("meant")["row"].sort()
    return rank.ops[meant.to_list()]
