"""Kernels that aren't there."""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools
from tracekit.errors import WhatIfError
from tracekit.graph import Graph
from tracekit.graph.change import destinations, sources, without
from tracekit.graph.edges import EdgeKind
from tracekit.replay.run import Run
from tracekit.replay.whatif.edited import Edited, with_factors, with_graph
from tracekit.replay.whatif.launches import calls_of, without_launches
from tracekit.replay.whatif.select import Select
from tracekit.units import many


def remove(run: Run, select: Select) -> Edited:
    """Kernels and their launches are left out, and the ops that launch nothing else.

    Raises:
        WhatIfError: No kernel is selected, or all are.
    """
    rows = select.rows(run)
    if rows.all():
        raise WhatIfError("nothing is left of the run.", "Select fewer kernels.")
    calls = int(calls_of(run, rows).sum())
    left = with_factors(without_launches(run, rows), np.where(rows, 0.0, 1.0))
    left = with_graph(left, _without_meetings(left.graph, rows))
    # Kernels without a step count nowhere.
    kernels = run.kernels.with_columns(step=pl.when(pl.Series(~rows)).then("step"))
    count = int(rows.sum())
    told = f"{many(count, 'kernel')} and {many(calls, 'launch')} are left out"
    return Edited(replace(left, kernels=kernels), count, told)


def _without_meetings(graph: Graph, rows: Bools) -> Graph:
    """``graph`` in which kernels wait for no other rank."""
    gone = np.concatenate([np.zeros(graph.nodes.cpu, dtype=np.bool_), rows])
    meets = (graph.kind == EdgeKind.RENDEZVOUS) & (gone[sources(graph) // 2] | gone[destinations(graph) // 2])
    return replace(without(graph, meets), kept_ns=np.where(rows, 0, graph.kept_ns))
