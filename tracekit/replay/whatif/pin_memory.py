"""Copies between host and GPU that don't hold up their call."""

from dataclasses import replace

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph.change import destinations, sources, without
from tracekit.graph.edges import EdgeKind
from tracekit.graph.sync import MAX_OWN_NS
from tracekit.replay.run import Run
from tracekit.replay.whatif.cpu import of_calls
from tracekit.replay.whatif.edited import Edited, with_graph
from tracekit.replay.whatif.select import Select


def pin_memory(run: Run, select: Select) -> Edited:
    """Copies from and to pageable memory become asynchronous: their host memory is pinned.

    The copy itself takes as long as it did. A program that reads what was copied to the host still has to wait for
    it; waits in calls of their own stay (:func:`no_sync`).

    Raises:
        WhatIfError: No selected copy holds up its call.
    """
    graph, nodes = run.graph, run.graph.nodes
    rows = np.concatenate([np.zeros(nodes.cpu, dtype=np.bool_), select.rows(run)])
    giver, call = sources(graph) // 2, destinations(graph) // 2
    launcher = np.concatenate([np.full(nodes.cpu, -1), nodes.launcher])
    held = (graph.kind == EdgeKind.SYNC) & rows[giver] & (launcher[giver] == call)
    if not held.any():
        raise WhatIfError(f"none of the {select} is a copy that holds up its call.")
    calls = np.zeros(nodes.cpu, dtype=np.bool_)
    calls[call[held]] = True
    own = of_calls(graph, EdgeKind.RUN, calls)
    lag = np.where(own, np.minimum(graph.lag_ns, MAX_OWN_NS), graph.lag_ns)
    count = int(held.sum())
    left = without(replace(graph, lag_ns=lag), held)
    return Edited(with_graph(run, left), count, f"{count:,} copies don't hold up their call")
