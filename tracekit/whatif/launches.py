"""Find calls that launch given kernels or wait for the GPU, and remove launches."""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations, remove_edges
from tracekit.graph.nodes import NONE
from tracekit.graph.recorded import host_spans
from tracekit.graph.semantics.streams import MAX_GAP_NS
from tracekit.program import Program
from tracekit.trace import RankTrace
from tracekit.whatif.edited import replace_graph
from tracekit.whatif.host_work import compute_fraction_within, find_edges_to_calls, scale_lags


def find_launch_calls(program: Program, kernels: Bools) -> Bools:
    """Find the CPU nodes that launch only kernels of this selection."""
    nodes = program.graph.nodes
    launched = nodes.launcher != NONE
    mine, others = np.zeros(nodes.n_host, dtype=np.bool_), np.zeros(nodes.n_host, dtype=np.bool_)
    mine[nodes.launcher[launched & kernels]] = True
    others[nodes.launcher[launched & ~kernels]] = True
    only: Bools = mine & ~others
    return only


def find_blocking_calls(program: Program) -> Bools:
    """Find the CPU nodes that wait for the GPU."""
    return find_calls_reached_by(program, EdgeKind.SYNC)


def find_calls_reached_by(program: Program, kind: EdgeKind) -> Bools:
    """Find the CPU nodes that an edge of one kind leads to."""
    found = np.zeros(program.graph.nodes.start_ns.size, dtype=np.bool_)
    found[compute_edge_destinations(program.graph)[program.graph.kind == kind] // 2] = True
    return found[: program.graph.nodes.n_host]


def find_edges_to_kernels(program: Program, kind: EdgeKind, kernels: Bools) -> Bools:
    """Find the edges of one kind that lead to the start of given kernels."""
    nodes = np.zeros(program.graph.nodes.start_ns.size, dtype=np.bool_)
    nodes[program.graph.nodes.n_host :] = kernels
    found: Bools = (program.graph.kind == kind) & nodes[compute_edge_destinations(program.graph) // 2]
    return found


def remove_launches(program: Program, kernels: Bools) -> Program:
    """Remove the launches of some kernels; each kernel then starts right after the previous one on its stream.

    Their calls take zero time, and so do ops that launch nothing else, including the waits inside these ops.
    """
    nodes = program.graph.nodes
    in_ops = host_spans.build_spans(_find_exclusive_ops(program, kernels), program.launch_threads)
    waits = np.flatnonzero(find_blocking_calls(program))
    gone = find_launch_calls(program, kernels)
    gone[waits] |= in_ops.contain(nodes.lane[waits], nodes.start_ns[waits])
    graph = scale_lags(program.graph, 1 - compute_fraction_within(program.graph, in_ops))
    close = find_edges_to_kernels(program, EdgeKind.STREAM, kernels) & (graph.lag_ns < MAX_GAP_NS)
    free = close | find_edges_to_calls(graph, EdgeKind.RUN, gone)
    graph = replace(graph, lag_ns=np.where(free, 0, graph.lag_ns))
    dropped = find_edges_to_kernels(program, EdgeKind.LAUNCH, kernels)
    for kind in (EdgeKind.SYNC, EdgeKind.QUEUE):
        dropped |= find_edges_to_calls(graph, kind, gone)
    return replace_graph(program, remove_edges(graph, dropped))


def _find_exclusive_ops(program: Program, kernels: Bools) -> list[pl.DataFrame]:
    """Return, for each rank, the rows of the ops table that launch only kernels of this selection."""
    return [
        _find_exclusive_ops_of_rank(
            rank, program.kernels["op_row"], kernels, host_spans.select_rank_rows(program.kernels, rank)
        )
        for rank in program.ranks
    ]


def _find_exclusive_ops_of_rank(rank: RankTrace, op_row: pl.Series, kernels: Bools, mine: Bools) -> pl.DataFrame:
    rows = pl.DataFrame({"row": op_row, "meant": kernels}).filter(pl.Series(mine)).drop_nulls("row")
    meant = rows.group_by("row").agg(pl.col("meant").all()).filter("meant")["row"].sort()
    return rank.ops[meant.to_list()]
