"""Edits of collectives: overlap them with compute, or serialize them."""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.errors import WhatIfError
from tracekit.graph import Graph
from tracekit.graph.build import DEFAULT_LAG_NS
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.edit import compute_edge_destinations, compute_edge_sources, insert_edges, remove_edges
from tracekit.graph.semantics import DEFAULT_GAP_NS
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.registry import EditedProgram, edit, take_kernels
from tracekit.whatif.select import KernelSelection

DEPENDENT_FAMILY = "optimizer"


@edit("overlap(KERNELS)", take_kernels)
def overlap(program: Program, select: KernelSelection) -> EditedProgram:
    """Let collectives run beside later kernels; only the optimizer and the end of the step wait for them.

    Collectives keep their times and their waits for the data that they send. The result is an upper bound of what
    overlapping can save: a trace doesn't record what else needs their results.

    Raises:
        WhatIfError: No collective is selected, or nothing waits for one.
    """
    graph, nodes = program.graph, program.graph.nodes
    rows = _select_collectives(program, select)
    of_cpu = np.zeros(nodes.n_host, dtype=np.bool_)
    mine = np.concatenate([of_cpu, rows])
    waits_on = np.concatenate([~of_cpu, rows | (program.kernels["family"] == DEPENDENT_FAMILY).to_numpy()])
    src, dst = compute_edge_sources(graph) // 2, compute_edge_destinations(graph) // 2
    freed = np.isin(graph.kind, (EdgeKind.EVENT, EdgeKind.STREAM)) & mine[src] & ~waits_on[dst]
    if not freed.any():
        raise WhatIfError(messages.COLLECTIVES_NOT_AWAITED(selection=str(select)))
    apart = insert_edges(remove_edges(graph, freed), _relink_streams(graph, mine))
    count = int(rows.sum())
    change = messages.COLLECTIVES_OVERLAPPED(collectives=count, kernels=int(freed.sum()))
    return EditedProgram(replace(program, graph=apart), count, change)


@edit("serialize(KERNELS)", take_kernels)
def serialize(program: Program, select: KernelSelection) -> EditedProgram:
    """Let collectives run alone: they wait for activities that began earlier, and later activities wait for them.

    Raises:
        WhatIfError: No collective is selected, or the GPU has only one stream.
    """
    rows = _select_collectives(program, select)
    nodes = program.graph.nodes
    mine = nodes.activities[rows]
    lanes = np.unique(nodes.lane[nodes.n_host :]).tolist()
    pairs = [pair for lane in lanes for pair in _find_stream_neighbours(program, mine, lane)]
    src, dst = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    if not src.size:
        raise WhatIfError(messages.COLLECTIVES_ALONE())
    lag = np.full(src.size, DEFAULT_LAG_NS)
    count = int(rows.sum())
    alone = insert_edges(program.graph, Edges(EdgeKind.EVENT, to_end_vertices(src), to_start_vertices(dst), lag))
    left_out = alone.dropped - program.graph.dropped
    if left_out == src.size:
        raise WhatIfError(messages.COLLECTIVES_CONTRADICT_RANKS())
    change = messages.COLLECTIVES_SERIALIZED(collectives=count)
    if left_out:
        change = messages.COLLECTIVES_MOSTLY_SERIALIZED(collectives=count, left_out=left_out, waits=int(src.size))
    return EditedProgram(replace(program, graph=alone), count, change)


def _select_collectives(program: Program, select: KernelSelection) -> Bools:
    rows: Bools = select.find_rows(program) & (program.kernels["family"] == "collective").to_numpy()
    if not rows.any():
        raise WhatIfError(messages.COLLECTIVES_NOT_FOUND(selection=str(select)))
    return rows


def _relink_streams(graph: Graph, mine: Bools) -> Edges:
    """Return stream edges for two parts of each stream, once some activities move to a stream of their own.

    One part is the remaining activities, the other the moved ones::

        before: A -> C1 -> B -> C2      C1, C2: moved collectives
        after:  A -> B,  C1 -> C2       only edges between activities that weren't neighbours are new
    """
    nodes = graph.nodes
    place = np.empty(nodes.start_ns.size, dtype=np.int64)
    place[nodes.sort_by_lane(nodes.activities)] = np.arange(nodes.activities.size)
    parts = [nodes.find_neighbours(nodes.activities[mine[nodes.n_host :] == which]) for which in (False, True)]
    before, after = (np.concatenate(ends_) for ends_ in zip(*parts, strict=True))
    parted = place[after] - place[before] > 1
    before, after = before[parted], after[parted]
    return Edges(
        EdgeKind.STREAM, to_end_vertices(before), to_start_vertices(after), np.full(before.size, DEFAULT_GAP_NS)
    )


def _find_stream_neighbours(program: Program, mine: Ints, lane: int) -> list[tuple[Ints, Ints]]:
    """Find each activity's neighbours on another stream of its GPU: the last one before it, the first one after."""
    nodes = program.graph.nodes
    given = nodes.activities[nodes.lane[nodes.n_host :] == lane]
    given = given[np.argsort(nodes.start_ns[given], kind="stable")]
    gpu = program.kernels.select(
        pl.struct(column for column in ("rank", "device") if column in program.kernels.columns)
    )
    of_gpu = gpu.to_series().rank("dense").to_numpy()
    others = mine[(nodes.lane[mine] != lane) & (of_gpu[mine - nodes.n_host] == of_gpu[given[0] - nodes.n_host])]
    at = np.searchsorted(nodes.start_ns[given], nodes.start_ns[others])
    earlier, later = at > 0, at < given.size
    return [(given[at[earlier] - 1], others[earlier]), (others[later], given[at[later]])]
