"""Collectives that compute goes on under, or that have the GPU to themselves."""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.errors import WhatIfError
from tracekit.graph import Graph
from tracekit.graph.change import destinations, sources, with_edges, without
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.events import DEFAULT_LAG_NS
from tracekit.graph.streams import DEFAULT_GAP_NS
from tracekit.replay.run import Run
from tracekit.replay.whatif.edited import Edited, with_graph
from tracekit.replay.whatif.select import Select
from tracekit.units import many

NEEDS_THE_RESULT = "optimizer"


def overlap(run: Run, select: Select) -> Edited:
    """Collectives run beside what is launched after them; only the optimizer and the end of the step wait for them.

    They keep their time, and their waits for what they send. This is the most that overlapping can save: what else
    needs their result isn't in a trace.

    Raises:
        WhatIfError: No collective is selected, or nothing waits for one.
    """
    graph, nodes = run.graph, run.graph.nodes
    rows = _collectives(run, select)
    of_cpu = np.zeros(nodes.cpu, dtype=np.bool_)
    mine = np.concatenate([of_cpu, rows])
    waits_on = np.concatenate([~of_cpu, rows | (run.kernels["family"] == NEEDS_THE_RESULT).to_numpy()])
    src, dst = sources(graph) // 2, destinations(graph) // 2
    freed = np.isin(graph.kind, (EdgeKind.EVENT, EdgeKind.STREAM)) & mine[src] & ~waits_on[dst]
    if not freed.any():
        raise WhatIfError(f"nothing waits for a collective among the {select}.")
    apart = with_edges(without(graph, freed), _past(graph, mine))
    count = int(rows.sum())
    told = f"no wait for {many(count, 'collective')} in {many(int(freed.sum()), 'kernel')}"
    return Edited(with_graph(run, apart), count, told)


def serialize(run: Run, select: Select) -> Edited:
    """Collectives have the GPU to themselves: they wait for what began before, and what begins after waits for them.

    Raises:
        WhatIfError: No collective is selected, or the GPU has one stream only.
    """
    rows = _collectives(run, select)
    nodes = run.graph.nodes
    mine = nodes.activities[rows]
    lanes = np.unique(nodes.lane[nodes.cpu :]).tolist()
    pairs = [pair for lane in lanes for pair in _around(run, mine, lane)]
    src, dst = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    if not src.size:
        raise WhatIfError("there is no other stream beside the collectives.")
    lag = np.full(src.size, DEFAULT_LAG_NS)
    count = int(rows.sum())
    alone = with_edges(run.graph, Edges(EdgeKind.EVENT, ends(src), starts(dst), lag))
    left_out = alone.dropped - run.graph.dropped
    if left_out == src.size:
        raise WhatIfError("waiting for the collectives contradicts the order in which ranks meet.", "Take one rank.")
    told = f", but for {left_out:,} of {src.size:,} waits that contradict others" if left_out else ""
    return Edited(with_graph(run, alone), count, f"the GPU to themselves for {many(count, 'collective')}{told}")


def _collectives(run: Run, select: Select) -> Bools:
    rows: Bools = select.rows(run) & (run.kernels["family"] == "collective").to_numpy()
    if not rows.any():
        raise WhatIfError(f"there is no collective among the {select}.")
    return rows


def _past(graph: Graph, mine: Bools) -> Edges:
    """Stream order of what is left on a stream once some activities have a stream of their own, and of these."""
    nodes = graph.nodes
    place = np.empty(nodes.start_ns.size, dtype=np.int64)
    place[nodes.in_order(nodes.activities)] = np.arange(nodes.activities.size)
    parts = [nodes.neighbours(nodes.activities[mine[nodes.cpu :] == which]) for which in (False, True)]
    before, after = (np.concatenate(ends_) for ends_ in zip(*parts, strict=True))
    parted = place[after] - place[before] > 1
    before, after = before[parted], after[parted]
    return Edges(EdgeKind.STREAM, ends(before), starts(after), np.full(before.size, DEFAULT_GAP_NS))


def _around(run: Run, mine: Ints, lane: int) -> list[tuple[Ints, Ints]]:
    """What a stream ran last before each of some activities of its GPU, and first after it, as pairs of nodes."""
    nodes = run.graph.nodes
    given = nodes.activities[nodes.lane[nodes.cpu :] == lane]
    given = given[np.argsort(nodes.start_ns[given], kind="stable")]
    gpu = run.kernels.select(pl.struct(column for column in ("rank", "device") if column in run.kernels.columns))
    of_gpu = gpu.to_series().rank("dense").to_numpy()
    others = mine[(nodes.lane[mine] != lane) & (of_gpu[mine - nodes.cpu] == of_gpu[given[0] - nodes.cpu])]
    at = np.searchsorted(nodes.start_ns[given], nodes.start_ns[others])
    earlier, later = at > 0, at < given.size
    return [(given[at[earlier] - 1], others[earlier]), (others[later], given[at[later]])]
