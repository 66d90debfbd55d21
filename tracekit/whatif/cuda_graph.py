"""Edit: replace launches by launches of CUDA graphs."""

from dataclasses import replace

import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.errors import WhatIfError
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations, compute_edge_sources, remove_edges
from tracekit.graph.inferred import cuda_graph_gaps
from tracekit.graph.nodes import NONE
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, replace_graph
from tracekit.whatif.host_work import find_edges_to_calls
from tracekit.whatif.launches import find_launch_calls
from tracekit.whatif.select import KernelSelection
from tracekit.whatif.sequences import find_launch_sequences

# Time from a graph's launch to the start of its first kernel, and time that each kernel adds until the call returns, as
# profiled. CUDA: 14 us for one kernel, 19 for 3 (the least of an A100's calls, CUDA 11), 71 us for 69, 86 for 73, 161
# for 155, 186 for 164 (RTX 3060, CUDA 13; github.com/luatil/torch-profile). ROCm: 38 us for 15, 507 us for 421,
# 1,573 us for 544 (MI300X, vLLM and SGLang; AMD-AGI/TraceLens, tests/traces/inference).
GRAPH_LAUNCH_NS, GRAPH_KERNEL_NS = 13_000, 1_050
ROCM_GRAPH_LAUNCH_NS, ROCM_GRAPH_KERNEL_NS = 26_000, 1_100
# Largest gap between kernels of a graph. Queued kernels of H100 traces without graphs are 1.2 to 1.4 us apart, a tenth
# of them less than 0.9 to 1.2 us; kernels of graphs on an MI300X have no gap.
MAX_GRAPH_GAP_NS = 700


def cuda_graph(program: Program, select: KernelSelection) -> EditedProgram:
    """Replace launches that follow one another by one launch of a CUDA graph.

    A graph ends where the host waits for the GPU, hands over to another thread, or launches a kernel that isn't
    selected. Host work between the launches of a graph disappears. Gaps within graphs that the trace already has
    stay::

        before: call 1 | host work | call 2 | host work | call 3 |     3 launches
        after:  graph launch |                                        1 launch; gaps of kernels <= MAX_GRAPH_GAP_NS

    Raises:
        WhatIfError: No two launches follow one another without a wait in between.
    """
    graph = program.graph
    chosen = find_launch_calls(program, select.find_rows(program))
    found = find_launch_sequences(program, chosen)
    member, leads = found.sequence_id != NONE, found.is_first
    if not member.any():
        raise WhatIfError(messages.LAUNCHES_NOT_ADJACENT(selection=str(select)))
    lag = graph.lag_ns.copy()
    lag[find_edges_to_calls(graph, EdgeKind.RUN, member)] = 0
    launch_ns, call_ns = _compute_launch_times(graph.nodes.is_nvidia, found.sequence_id, member & chosen)
    calls = np.flatnonzero(find_edges_to_calls(graph, EdgeKind.RUN, leads))
    lag[calls] = call_ns[found.sequence_id[compute_edge_destinations(graph)[calls] // 2]]
    lag[find_edges_to_calls(graph, EdgeKind.PROGRAM, member & ~leads)] = 0
    number = np.concatenate([found.sequence_id, [NONE]])
    first = np.concatenate([leads, [False]])
    src, dst = compute_edge_sources(graph) // 2, compute_edge_destinations(graph) // 2
    call = np.minimum(src, graph.nodes.n_host)
    launch = (graph.kind == EdgeKind.LAUNCH) & (number[call] != NONE)
    lag[launch] = np.where(first[call[launch]], launch_ns, 0)
    of_kernel = np.full(graph.nodes.start_ns.size, NONE)
    of_kernel[graph.nodes.n_host :] = number[graph.nodes.launcher]
    within = (graph.kind == EdgeKind.STREAM) & (of_kernel[src] == of_kernel[dst]) & (of_kernel[dst] != NONE)
    within &= ~_find_recorded_graph_edges(program, src, dst, lag)
    lag[within] = np.minimum(lag[within], MAX_GRAPH_GAP_NS)
    left = remove_edges(replace(graph, lag_ns=lag), find_edges_to_calls(graph, EdgeKind.QUEUE, member))
    launches, graphs = int((member & chosen).sum()), int(leads.sum())
    return EditedProgram(
        replace_graph(program, left), launches, messages.LAUNCHES_GRAPHED(launches=launches, graphs=graphs)
    )


def _find_recorded_graph_edges(program: Program, src: Ints, dst: Ints, lag_ns: Ints) -> Bools:
    """Find the edges between activities of one recorded graph launch, and long edges before or after a recorded graph.

    A long edge at the border of a graph takes as long in each of the graph's replays.
    """
    nodes = program.graph.nodes
    launcher = np.full(nodes.start_ns.size, NONE)
    launcher[nodes.n_host :] = nodes.launcher
    graphs = np.append(nodes.is_graph_launch, False)
    before, after = launcher[src], launcher[dst]
    found: Bools = graphs[before] & (before == after) | (graphs[before] | graphs[after]) & (
        lag_ns > cuda_graph_gaps.MIN_GAP_NS
    )
    return found


def _compute_launch_times(on_nvidia: bool, number: Ints, launches: Bools) -> tuple[int, Ints]:
    """Compute the time from a graph's launch to its first kernel, and to the call's return, by sequence."""
    kernels = np.bincount(number[launches], minlength=int(number.max(initial=0)) + 1)
    launch_ns, kernel_ns = (
        (GRAPH_LAUNCH_NS, GRAPH_KERNEL_NS) if on_nvidia else (ROCM_GRAPH_LAUNCH_NS, ROCM_GRAPH_KERNEL_NS)
    )
    return launch_ns, launch_ns + kernel_ns * kernels
