"""Edit: pinned memory, so that copies between host and GPU don't block their call."""

from dataclasses import replace

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations, compute_edge_sources, remove_edges
from tracekit.graph.semantics.host_syncs import MAX_OWN_NS
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, replace_graph
from tracekit.whatif.host_work import find_edges_to_calls
from tracekit.whatif.select import KernelSelection


def pin_memory(program: Program, select: KernelSelection) -> EditedProgram:
    """Make copies from and to pageable memory asynchronous, as if their host memory were pinned.

    The copy itself keeps its time. A program that reads data copied to the host still has to wait for it: waits in
    separate calls stay (:func:`no_sync`).

    Raises:
        WhatIfError: No selected copy blocks its call.
    """
    graph, nodes = program.graph, program.graph.nodes
    rows = np.concatenate([np.zeros(nodes.n_host, dtype=np.bool_), select.find_rows(program)])
    giver, call = compute_edge_sources(graph) // 2, compute_edge_destinations(graph) // 2
    launcher = np.concatenate([np.full(nodes.n_host, -1), nodes.launcher])
    held = (graph.kind == EdgeKind.SYNC) & rows[giver] & (launcher[giver] == call)
    if not held.any():
        raise WhatIfError(messages.COPIES_DONT_BLOCK(selection=str(select)))
    calls = np.zeros(nodes.n_host, dtype=np.bool_)
    calls[call[held]] = True
    own = find_edges_to_calls(graph, EdgeKind.RUN, calls)
    lag = np.where(own, np.minimum(graph.lag_ns, MAX_OWN_NS), graph.lag_ns)
    count = int(held.sum())
    left = remove_edges(replace(graph, lag_ns=lag), held)
    return EditedProgram(replace_graph(program, left), count, messages.COPIES_PINNED(copies=count))
