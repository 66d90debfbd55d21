"""Launches that one CUDA graph stands for."""

from dataclasses import replace

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph.change import destinations, sources, without
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.replay.run import Run
from tracekit.replay.whatif.cpu import of_calls
from tracekit.replay.whatif.edited import Edited, with_graph
from tracekit.replay.whatif.launches import calls_of
from tracekit.replay.whatif.select import Select
from tracekit.replay.whatif.sequences import sequences

# What a launch of a graph takes, until it returns and until its first kernel starts: 28 us (A100, CUDA 11) and 38 us
# (MI300X) where the profiler watches, 2.5 us and 1 ns per kernel where it doesn't (CUDA 12.6, NVIDIA's blog).
LAUNCH_NS = 15_000
# How far kernels of a graph are apart; 0.5 us on a V100 (NVIDIA's blog "Getting started with CUDA graphs").
GAP_NS = 700


def cuda_graph(run: Run, select: Select) -> Edited:
    """Launches that follow each other become one launch of a CUDA graph.

    A graph ends where the CPU waits for the GPU, hands over to another thread, or launches a kernel that isn't
    selected. What the CPU did between the launches of a graph is not done any more.

    Raises:
        WhatIfError: No two launches follow each other without a wait in between.
    """
    graph = run.graph
    chosen = calls_of(run, select.rows(run))
    found = sequences(run, chosen)
    member, leads = found.number != NONE, found.leads
    if not member.any():
        raise WhatIfError(f"no two launches of {select} follow each other without a wait in between.")
    lag = graph.lag_ns.copy()
    lag[of_calls(graph, EdgeKind.RUN, member)] = 0
    lag[of_calls(graph, EdgeKind.RUN, leads)] = LAUNCH_NS
    lag[of_calls(graph, EdgeKind.PROGRAM, member & ~leads)] = 0
    number = np.concatenate([found.number, [NONE]])
    first = np.concatenate([leads, [False]])
    src, dst = sources(graph) // 2, destinations(graph) // 2
    call = np.minimum(src, graph.nodes.cpu)
    launch = (graph.kind == EdgeKind.LAUNCH) & (number[call] != NONE)
    lag[launch] = np.where(first[call[launch]], LAUNCH_NS, 0)
    of_kernel = np.full(graph.nodes.start_ns.size, NONE)
    of_kernel[graph.nodes.cpu :] = number[graph.nodes.launcher]
    within = (graph.kind == EdgeKind.STREAM) & (of_kernel[src] == of_kernel[dst]) & (of_kernel[dst] != NONE)
    lag[within] = np.minimum(lag[within], GAP_NS)
    left = without(replace(graph, lag_ns=lag), of_calls(graph, EdgeKind.QUEUE, member))
    launches, graphs = int((member & chosen).sum()), int(leads.sum())
    return Edited(with_graph(run, left), launches, f"{launches:,} launches become {graphs:,} of CUDA graphs")
