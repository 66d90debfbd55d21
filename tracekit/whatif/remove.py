"""Edit: remove kernels."""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools
from tracekit.errors import WhatIfError
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations, compute_edge_sources, remove_edges
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, replace_graph, scale_kernel_times
from tracekit.whatif.launches import find_launch_calls, remove_launches
from tracekit.whatif.select import KernelSelection


def remove(program: Program, select: KernelSelection) -> EditedProgram:
    """Remove kernels, their launches, and the ops that launch nothing else.

    Raises:
        WhatIfError: No kernel is selected, or all are.
    """
    rows = select.find_rows(program)
    if rows.all():
        raise WhatIfError(messages.RUN_EMPTY())
    calls = int(find_launch_calls(program, rows).sum())
    left = scale_kernel_times(remove_launches(program, rows), np.where(rows, 0.0, 1.0))
    left = replace_graph(left, _remove_rendezvous(left.graph, rows))
    # Kernels without a step aren't counted in any step.
    kernels = program.kernels.with_columns(step=pl.when(pl.Series(~rows)).then("step"))
    count = int(rows.sum())
    return EditedProgram(
        left.replace_tables(kernels=kernels), count, messages.KERNELS_REMOVED(kernels=count, launches=calls)
    )


def _remove_rendezvous(graph: Graph, rows: Bools) -> Graph:
    """Return the graph without the rendezvous edges and measured waits of some kernels."""
    gone = np.concatenate([np.zeros(graph.nodes.n_host, dtype=np.bool_), rows])
    meets = (graph.kind == EdgeKind.RENDEZVOUS) & (
        gone[compute_edge_sources(graph) // 2] | gone[compute_edge_destinations(graph) // 2]
    )
    return replace(remove_edges(graph, meets), kept_ns=np.where(rows, 0, graph.kept_ns))
