"""The CPU's own work, calls that launch or wait, and sequences of launches: what edits of the host change."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Floats, Ints
from tracekit.graph import Graph, recorded
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations, compute_edge_sources, remove_edges
from tracekit.graph.nodes import NONE
from tracekit.graph.recorded import HostSpans
from tracekit.graph.semantics import MAX_GAP_NS
from tracekit.program import Program, round_to_ns
from tracekit.trace import RankTrace


def compute_fraction_within(graph: Graph, inside: HostSpans, calls: bool = False) -> Floats:
    """Compute for each edge the fraction of work between calls that was measured within spans; 0 for other edges.

    Args:
        graph: The graph.
        inside: The spans.
        calls: Whether to include the work within calls.
    """
    nodes = graph.nodes
    times = np.stack([nodes.start_ns, nodes.end_ns], axis=1).ravel()
    to = compute_edge_destinations(graph)
    edge = np.flatnonzero(
        (graph.kind == EdgeKind.PROGRAM) | (calls & (graph.kind == EdgeKind.RUN) & (to < 2 * nodes.n_host))
    )
    dst = to[edge]
    begin, end = times[compute_edge_sources(graph)[edge]], times[dst]
    share = np.zeros(graph.kind.size)
    share[edge] = inside.measure_covered_ns(nodes.lane[dst // 2], begin, end) / np.maximum(end - begin, 1)
    return share


def scale_lags(graph: Graph, factor: Floats) -> Graph:
    """Return the graph with every edge's lag multiplied by its own factor.

    Raises:
        WhatIfError: The lags add up to more than 30 years.
    """
    return replace(graph, lag_ns=round_to_ns(graph.lag_ns * factor, "CPU's own work"))


def find_edges_to_calls(graph: Graph, kind: EdgeKind, calls: Bools) -> Bools:
    """Mark the edges of one kind that lead to some CPU nodes."""
    nodes = np.zeros(graph.nodes.start_ns.size, dtype=np.bool_)
    nodes[: calls.size] = calls
    found: Bools = (graph.kind == kind) & nodes[compute_edge_destinations(graph) // 2]
    return found


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
    in_ops = recorded.build_spans(_find_exclusive_ops(program, kernels), program.launch_threads)
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
    return replace(program, graph=remove_edges(graph, dropped))


def _find_exclusive_ops(program: Program, kernels: Bools) -> list[pl.DataFrame]:
    """Return, for each rank, the rows of the ops table that launch only kernels of this selection."""
    return [
        _find_exclusive_ops_of_rank(
            rank, program.kernels["op_row"], kernels, recorded.select_rank_rows(program.kernels, rank)
        )
        for rank in program.ranks
    ]


def _find_exclusive_ops_of_rank(rank: RankTrace, op_row: pl.Series, kernels: Bools, mine: Bools) -> pl.DataFrame:
    rows = pl.DataFrame({"row": op_row, "meant": kernels}).filter(pl.Series(mine)).drop_nulls("row")
    meant = rows.group_by("row").agg(pl.col("meant").all()).filter("meant")["row"].sort()
    return rank.ops[meant.to_list()]


@dataclass(frozen=True, slots=True)
class LaunchSequences:
    """Sequences of two or more launches of one step and thread, without a wait or another launch in between.

    Attributes:
        sequence_id: Sequence of each CPU node, also of calls between its launches that wait for nothing; ``NONE``
            outside of sequences.
        is_first: Mask of the CPU nodes that begin a sequence.
    """

    sequence_id: Ints
    is_first: Bools


def find_launch_sequences(program: Program, launches: Bools) -> LaunchSequences:
    """Find sequences of launches.

    Args:
        program: The program.
        launches: Mask of the CPU nodes, all of them launches, that may belong to a sequence.
    """
    nodes = program.graph.nodes
    order = nodes.sort_by_lane(np.arange(nodes.n_host))
    launch = (launches & ~find_blocking_calls(program))[order]
    idle = _find_free_calls(program)[order]
    place = np.stack([nodes.lane[order], _assign_steps_to_calls(program, order)])
    resumes = find_calls_reached_by(program, EdgeKind.HANDOVER)[order]
    new = ~(launch | idle) | resumes
    new[:1] = True
    new[1:] |= ~(launch | idle)[:-1] | (place[:, 1:] != place[:, :-1]).any(axis=0)
    number = np.cumsum(new) - 1
    at = np.arange(order.size)
    first, last = np.full(order.size, order.size), np.full(order.size, NONE)
    np.minimum.at(first, number[launch], at[launch])
    np.maximum.at(last, number[launch], at[launch])
    inside = (at >= first[number]) & (at <= last[number]) & (first < last)[number]
    found, leads = np.full(nodes.n_host, NONE), np.zeros(nodes.n_host, dtype=np.bool_)
    found[order[inside]] = number[inside]
    leads[order[inside & (at == first[number])]] = True
    return LaunchSequences(found, leads)


def _find_free_calls(program: Program) -> Bools:
    """Find calls that neither launch anything nor wait."""
    nodes = program.graph.nodes
    calls = np.arange(nodes.n_host) < nodes.n_host - nodes.n_marks
    calls[nodes.launcher[nodes.launcher != NONE]] = False
    nothing: Bools = calls & ~find_blocking_calls(program)
    return nothing


def _assign_steps_to_calls(program: Program, order: Ints) -> Ints:
    """Return the step of each call, in order; calls that launch nothing belong to the previous launch's step."""
    nodes = program.graph.nodes
    launched = nodes.launcher != NONE
    step = np.full(nodes.n_host, NONE)
    step[nodes.launcher[launched]] = program.kernels["step"].fill_null(NONE).to_numpy()[launched]
    launches = np.zeros(nodes.n_host, dtype=np.bool_)
    launches[nodes.launcher[launched]] = True
    latest = np.maximum.accumulate(np.where(launches[order], np.arange(order.size), 0))
    return step[order[latest]] if order.size else step
