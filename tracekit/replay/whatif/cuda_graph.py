"""Launches that one CUDA graph stands for."""

from dataclasses import replace

import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.errors import WhatIfError
from tracekit.graph import replays
from tracekit.graph.change import destinations, sources, without
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.replay.run import Run
from tracekit.replay.whatif.cpu import of_calls
from tracekit.replay.whatif.edited import Edited, with_graph
from tracekit.replay.whatif.launches import calls_of
from tracekit.replay.whatif.select import Select
from tracekit.replay.whatif.sequences import sequences
from tracekit.units import many

# What a launch of a graph takes until its first kernel starts, and what each kernel adds until the call returns, as
# profiled. CUDA: 14 us for one kernel, 19 for 3 (the least of an A100's calls, CUDA 11), 71 us for 69, 86 for 73, 161
# for 155, 186 for 164 (RTX 3060, CUDA 13; github.com/luatil/torch-profile). ROCm: 38 us for 15, 507 us for 421,
# 1,573 us for 544 (MI300X, vLLM and SGLang; AMD-AGI/TraceLens, tests/traces/inference).
LAUNCH_NS, KERNEL_NS = 13_000, 1_050
ROCM_LAUNCH_NS, ROCM_KERNEL_NS = 26_000, 1_100
# How far kernels of a graph are apart at most. Queued kernels of H100 traces without graphs are 1.2 to 1.4 us apart, a
# tenth of them under 0.9 to 1.2 us; kernels of graphs on an MI300X not at all.
GAP_NS = 700


def cuda_graph(run: Run, select: Select) -> Edited:
    """Launches that follow each other become one launch of a CUDA graph.

    A graph ends where the CPU waits for the GPU, hands over to another thread, or launches a kernel that isn't
    selected. What the CPU did between the launches of a graph is not done any more. Gaps within graphs that the trace
    has already stay.

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
    launch_ns, call_ns = _launch(graph.nodes.on_nvidia, found.number, member & chosen)
    calls = np.flatnonzero(of_calls(graph, EdgeKind.RUN, leads))
    lag[calls] = call_ns[found.number[destinations(graph)[calls] // 2]]
    lag[of_calls(graph, EdgeKind.PROGRAM, member & ~leads)] = 0
    number = np.concatenate([found.number, [NONE]])
    first = np.concatenate([leads, [False]])
    src, dst = sources(graph) // 2, destinations(graph) // 2
    call = np.minimum(src, graph.nodes.cpu)
    launch = (graph.kind == EdgeKind.LAUNCH) & (number[call] != NONE)
    lag[launch] = np.where(first[call[launch]], launch_ns, 0)
    of_kernel = np.full(graph.nodes.start_ns.size, NONE)
    of_kernel[graph.nodes.cpu :] = number[graph.nodes.launcher]
    within = (graph.kind == EdgeKind.STREAM) & (of_kernel[src] == of_kernel[dst]) & (of_kernel[dst] != NONE)
    within &= ~_of_graphs(run, src, dst, lag)
    lag[within] = np.minimum(lag[within], GAP_NS)
    left = without(replace(graph, lag_ns=lag), of_calls(graph, EdgeKind.QUEUE, member))
    launches, graphs = int((member & chosen).sum()), int(leads.sum())
    return Edited(with_graph(run, left), launches, f"{many(launches, 'launch')} become {graphs:,} of CUDA graphs")


def _of_graphs(run: Run, src: Ints, dst: Ints, lag_ns: Ints) -> Bools:
    """Edges between activities of one recorded graph, or around one and as long in each of its replays."""
    nodes = run.graph.nodes
    launcher = np.full(nodes.start_ns.size, NONE)
    launcher[nodes.cpu :] = nodes.launcher
    graphs = np.append(nodes.launches_graph, False)
    before, after = launcher[src], launcher[dst]
    found: Bools = graphs[before] & (before == after) | (graphs[before] | graphs[after]) & (lag_ns > replays.GAP_NS)
    return found


def _launch(on_nvidia: bool, number: Ints, launches: Bools) -> tuple[int, Ints]:
    """What a graph's launch takes until its first kernel starts, and until the call returns, by number of the graph."""
    kernels = np.bincount(number[launches], minlength=int(number.max(initial=0)) + 1)
    launch_ns, kernel_ns = (LAUNCH_NS, KERNEL_NS) if on_nvidia else (ROCM_LAUNCH_NS, ROCM_KERNEL_NS)
    return launch_ns, launch_ns + kernel_ns * kernels
