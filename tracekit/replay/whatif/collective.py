"""Collectives that compute goes on under, or that have the GPU to themselves."""

import numpy as np
import numpy.typing as npt

from tracekit.errors import WhatIfError
from tracekit.graph import Graph
from tracekit.graph.change import destinations, sources, with_edges, without
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.events import DEFAULT_LAG_NS
from tracekit.graph.nodes import NONE, Nodes
from tracekit.graph.streams import DEFAULT_GAP_NS
from tracekit.replay.run import Run
from tracekit.replay.whatif.edited import Edited, with_graph
from tracekit.replay.whatif.select import Select

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

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
    return Edited(with_graph(run, apart), count, f"{int(freed.sum()):,} kernels don't wait for {count:,} collectives")


def serialize(run: Run, select: Select) -> Edited:
    """Collectives have the GPU to themselves: they wait for what was launched before, and what follows for them.

    Raises:
        WhatIfError: No collective is selected, or the GPU has one stream only.
    """
    rows = _collectives(run, select)
    nodes = run.graph.nodes
    mine = nodes.activities[rows]
    launched = np.where(nodes.launcher == NONE, nodes.start_ns[nodes.cpu :], nodes.start_ns[nodes.launcher])
    pairs = [pair for lane in _lanes(nodes) for pair in _around(nodes, mine, launched, lane)]
    src, dst = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    if not src.size:
        raise WhatIfError("there is no other stream beside the collectives.")
    lag = np.full(src.size, DEFAULT_LAG_NS)
    count = int(rows.sum())
    alone = with_edges(run.graph, Edges(EdgeKind.EVENT, ends(src), starts(dst), lag))
    return Edited(with_graph(run, alone), count, f"{count:,} collectives have the GPU to themselves")


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


def _lanes(nodes: Nodes) -> list[int]:
    lanes: list[int] = np.unique(nodes.lane[nodes.cpu :]).tolist()
    return lanes


def _around(nodes: Nodes, mine: Ints, launched: Ints, lane: int) -> list[tuple[Ints, Ints]]:
    """What a stream was given last before each of some activities, and first after it, as pairs of nodes."""
    given = nodes.activities[nodes.lane[nodes.cpu :] == lane]
    given = given[np.lexsort((nodes.start_ns[given], launched[given - nodes.cpu]))]
    others = mine[nodes.lane[mine] != lane]
    at = np.searchsorted(launched[given - nodes.cpu], launched[others - nodes.cpu])
    earlier, later = at > 0, at < given.size
    return [(given[at[earlier] - 1], others[earlier]), (others[later], given[at[later]])]
