"""Edits of the host's work: less of it, fewer or faster launches, no waits."""

from dataclasses import replace
from typing import Any

import numpy as np

from tracekit.analysis.profiler_overhead import find_stalls_of_steps
from tracekit.arrays import Bools, Ints
from tracekit.errors import WhatIfError
from tracekit.graph import recorded
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations, compute_edge_sources, remove_edges
from tracekit.graph.host_syncs import MAX_OWN_NS
from tracekit.graph.inferred import stream_gaps
from tracekit.graph.nodes import NONE
from tracekit.graph.recorded import DATA_LOADER_RANGES
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.launches import (
    compute_fraction_within,
    find_blocking_calls,
    find_edges_to_calls,
    find_launch_calls,
    find_launch_sequences,
    scale_lags,
)
from tracekit.whatif.registry import EditArguments, EditedProgram, edit, parse_number_of_edit, take_kernels
from tracekit.whatif.select import KernelSelection, check_pattern

REMAINING_HOST_FRACTION = 0.1


def _take_fraction(given: EditArguments) -> dict[str, Any]:
    return {"select": given.get_kernels(words=1), "host": given.get_number(REMAINING_HOST_FRACTION)}


@edit("compile(KERNELS, HOST)", _take_fraction)
def compile_host_work(
    program: Program, select: KernelSelection, host: float = REMAINING_HOST_FRACTION
) -> EditedProgram:
    """Scale the host work before each launch, back to the thread's previous call.

    Launches and kernels stay. ``torch.compile`` also fuses kernels (:func:`fuse`).

    Raises:
        WhatIfError: The trace has no launch of a selected kernel, or the fraction is negative or not finite.
    """
    if not 0 <= host < np.inf:
        raise WhatIfError(messages.HOST_FRACTION_INVALID(fraction=host))
    calls = find_launch_calls(program, select.find_rows(program))
    if not calls.any():
        raise WhatIfError(messages.LAUNCHES_NOT_FOUND(selection=str(select)))
    to_calls = find_edges_to_calls(program.graph, EdgeKind.PROGRAM, calls)
    count = int(calls.sum())
    graph = scale_lags(program.graph, np.where(to_calls, host, 1.0))
    return EditedProgram(
        replace(program, graph=graph), count, messages.HOST_WORK_COMPILED(launches=count, fraction=host)
    )


# Time from a graph's launch to the start of its first kernel, and time that each kernel adds until the call returns, as
# profiled. CUDA: 14 us for one kernel, 19 for 3 (the least of an A100's calls, CUDA 11), 71 us for 69, 86 for 73, 161
# for 155, 186 for 164 (RTX 3060, CUDA 13; github.com/luatil/torch-profile). ROCm: 38 us for 15, 507 us for 421,
# 1,573 us for 544 (MI300X, vLLM and SGLang; AMD-AGI/TraceLens, tests/traces/inference).
GRAPH_LAUNCH_NS, GRAPH_KERNEL_NS = 13_000, 1_050
ROCM_GRAPH_LAUNCH_NS, ROCM_GRAPH_KERNEL_NS = 26_000, 1_100
# Largest gap between kernels of a graph. Queued kernels of H100 traces without graphs are 1.2 to 1.4 us apart, a tenth
# of them less than 0.9 to 1.2 us; kernels of graphs on an MI300X have no gap.
MAX_GRAPH_GAP_NS = 700


@edit("cuda-graph(KERNELS)", take_kernels)
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
        replace(program, graph=left), launches, messages.LAUNCHES_GRAPHED(launches=launches, graphs=graphs)
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
        lag_ns > stream_gaps.MIN_GAP_NS
    )
    return found


def _compute_launch_times(on_nvidia: bool, number: Ints, launches: Bools) -> tuple[int, Ints]:
    """Compute the time from a graph's launch to its first kernel, and to the call's return, by sequence."""
    kernels = np.bincount(number[launches], minlength=int(number.max(initial=0)) + 1)
    launch_ns, kernel_ns = (
        (GRAPH_LAUNCH_NS, GRAPH_KERNEL_NS) if on_nvidia else (ROCM_GRAPH_LAUNCH_NS, ROCM_GRAPH_KERNEL_NS)
    )
    return launch_ns, launch_ns + kernel_ns * kernels


MIN_SPEED = 1e-6
HOST_WORK_KINDS = ("python", "op", "launch")


def _take_speeds(given: EditArguments) -> dict[str, Any]:
    given.refuse_extra(words=1, keys=HOST_WORK_KINDS)
    every = given.get_number(1.0) if given.keywords else given.get_number()
    named = {kind: parse_number_of_edit(given.keywords[kind]) for kind in HOST_WORK_KINDS if kind in given.keywords}
    speeds = dict.fromkeys(HOST_WORK_KINDS, every) | named
    check_speeds(*speeds.values())
    return speeds


@edit("host-speed(SPEED) or host-speed(python=SPEED, op=SPEED, launch=SPEED)", _take_speeds)
def host_speed(program: Program, *, python: float = 1.0, op: float = 1.0, launch: float = 1.0) -> EditedProgram:
    """Scale the speed of the host's own work.

    Args:
        program: The program.
        python: Speed between ops, and of handing over to another thread, as a multiple of the measured one.
        op: Speed within ops, outside of calls to CUDA or HIP.
        launch: Speed of calls to CUDA or HIP.

    Raises:
        WhatIfError: A speed is below ``MIN_SPEED``.
    """
    check_speeds(python, op, launch)
    graph = program.graph
    within = compute_fraction_within(
        graph, recorded.build_spans([rank.ops for rank in program.ranks], program.launch_threads)
    )
    on_cpu = compute_edge_destinations(graph) < 2 * graph.nodes.n_host
    factor = np.ones(graph.kind.size)
    between_calls = graph.kind == EdgeKind.PROGRAM
    factor[between_calls] = (within / op + (1 - within) / python)[between_calls]
    factor[graph.kind == EdgeKind.HANDOVER] = 1 / python
    factor[on_cpu & (graph.kind == EdgeKind.RUN)] = 1 / launch
    change = messages.HOST_SPEED_CHANGED(speed=python)
    if not python == op == launch:
        change = messages.HOST_SPEEDS_CHANGED(python=python, op=op, launch=launch)
    return EditedProgram(replace(program, graph=scale_lags(graph, factor)), int((factor != 1).sum()), change)


def check_speeds(*speeds: float) -> None:
    """Refuse speeds at which a replay would never end.

    Raises:
        WhatIfError: A speed is below ``MIN_SPEED``, or not a number.
    """
    if not all(speed >= MIN_SPEED for speed in speeds):
        raise WhatIfError(messages.HOST_SPEED_TOO_LOW(least=MIN_SPEED))


def _take_call(given: EditArguments) -> dict[str, Any]:
    call = given.refuse_extra(words=1).get_word(default="")
    check_pattern(call)
    return {"call": call}


@edit("no-sync(CALL)", _take_call)
def no_sync(program: Program, call: str = "") -> EditedProgram:
    """Let calls return without waiting for the GPU; a wait for work that isn't in the trace stays.

    Args:
        program: The program.
        call: A regular expression found in the name of the call, or of an op or annotation around it, such as
            ``aten::item``; all calls that wait by default.

    Raises:
        WhatIfError: No such call waits.
    """
    check_pattern(call)
    nodes = program.graph.nodes
    waits = np.flatnonzero(find_blocking_calls(program))
    if call:
        around = recorded.find_spans_by_name(program.ranks, program.launch_threads, call)
        named = nodes.names.gather(waits).str.contains(call).to_numpy()
        waits = waits[named | around.contain(nodes.lane[waits], nodes.start_ns[waits])]
    calls = np.zeros(nodes.n_host, dtype=np.bool_)
    calls[waits] = True
    if not calls.any():
        raise WhatIfError(messages.SYNCS_NOT_FOUND_WITHIN(call=call) if call else messages.SYNCS_NOT_FOUND())
    count = int(calls.sum())
    graph = remove_edges(program.graph, find_edges_to_calls(program.graph, EdgeKind.SYNC, calls))
    return EditedProgram(replace(program, graph=graph), count, messages.SYNCS_REMOVED(calls=count))


@edit("no-profiler()")
def no_profiler(program: Program) -> EditedProgram:
    """Set the profiler's own work that delayed a thread in the chosen steps to zero time.

    Raises:
        WhatIfError: The trace records no such work in them.
    """
    rows = find_stalls_of_steps(program)
    held = recorded.build_spans(rows, program.launch_threads)
    if not held.count:
        raise WhatIfError(messages.PROFILER_WORK_NOT_RECORDED())
    us = sum(float(table["dur_ns"].sum()) for table in rows) / 1e3
    share = compute_fraction_within(program.graph, held, calls=True)
    left = replace(program, graph=scale_lags(program.graph, 1 - share))
    return EditedProgram(left, held.count, messages.PROFILER_WORK_REMOVED(removed_us=us))


@edit("pin-memory(KERNELS)", take_kernels)
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
    return EditedProgram(replace(program, graph=left), count, messages.COPIES_PINNED(copies=count))


@edit("prefetch()")
def prefetch(program: Program) -> EditedProgram:
    """Set the time to get a batch from the data loader to zero.

    Raises:
        WhatIfError: The trace has no data loader on a thread that launches something.
    """
    loads = recorded.find_spans_by_name(program.ranks, program.launch_threads, DATA_LOADER_RANGES)
    if not loads.count:
        raise WhatIfError(messages.DATA_LOADER_NOT_FOUND())
    share = compute_fraction_within(program.graph, loads)
    return EditedProgram(
        replace(program, graph=scale_lags(program.graph, 1 - share)),
        loads.count,
        messages.BATCHES_PREFETCHED(batches=loads.count),
    )


@edit("infinite-queue()")
def infinite_queue(program: Program) -> EditedProgram:
    """Remove all waits of launches for a free place in their stream's launch queue.

    Raises:
        WhatIfError: No stream has enough launches to fill its queue.
    """
    queue = program.graph.kind == EdgeKind.QUEUE
    if not queue.any():
        raise WhatIfError(messages.QUEUE_NEVER_FULL())
    count = int(queue.sum())
    return EditedProgram(
        replace(program, graph=remove_edges(program.graph, queue)),
        count,
        messages.QUEUE_UNLIMITED(launches=count),
    )
