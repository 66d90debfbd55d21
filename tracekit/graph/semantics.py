"""Edges that CUDA, HIP and PyTorch guarantee. Where a trace lacks a fact, a rule of ``inferred`` supplies it.

Launches: an activity starts after its launch call, joined by the recorded correlation id, plus the launch latency.
Stream order: activities of one stream run one after the other. Program order: the calls of a CPU thread follow one
another; between two calls the thread works or waits. Latency and gaps between queued activities are medians of the
trace.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, DistinctNames, Ints, compute_medians
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.inferred import stream_gaps, submissions
from tracekit.graph.inferred.host_pauses import Handovers, HostWaits
from tracekit.graph.nodes import NONE, Nodes
from tracekit.rules import RuleNames

# From the call's start to the kernel's, on an idle stream: 6.4 to 11.6 us on A100, H100, V100, B200; used where a trace
# has no launch on an idle stream to measure it.
DEFAULT_LATENCY_NS = 8_000
# A kernel that starts later than this after its call waited for something other than its launch.
MAX_LATENCY_NS = 100_000
MIN_SAMPLES = 5
# Samples needed over all kernels, or all copies and memsets. A single one may have waited.
MIN_SAMPLES_BY_TYPE = 2


def link_launches(nodes: Nodes, kernels: pl.DataFrame, held_back: Ints, held_copies: Ints, without: RuleNames) -> Edges:
    """Build launch edges: the lag is the median latency of similar launches on an idle stream, 0 after a graph's call.

    Where a graph or the kernel of a slow call started just before its call returned, the lag from the call's end is
    negative by that much. Where a slow call delayed its work before that on an idle GPU, or fed the first piece of a
    copy, the measured delay is kept::

        call      |=========|                    slow call   |===========================|
        kernel      |######|                     its graph                            |######|
                  |-| lag from the start                                              |--| negative lag from the end

    No samples of the latency are activities ``held_back``, known to have waited for another stream, and
    ``held_copies``, which waited for work that isn't recorded: their launch isn't what delayed them.
    """
    launched = nodes.activities[nodes.launcher != NONE]
    launcher = nodes.launcher[nodes.launcher != NONE]
    idle = _find_idle_stream_launches(nodes)
    held_back = np.concatenate([held_back, held_copies])
    latency = _estimate_latency(nodes, kernels, idle, held_back)[nodes.launcher != NONE]
    submitted = submissions.assume_prompt_submission(launched)
    if submissions.SUBMISSION_RULE.is_on(without):
        is_kernel = (kernels["kind"] == "kernel").to_numpy()
        submitted = submissions.find_submission_times(nodes, launcher, launched, is_kernel)
    at_end, early = submitted.at_end, submitted.early_ns
    late = np.where(np.isin(launched, held_copies), 0, submitted.late_ns)
    source = np.where(at_end, to_end_vertices(launcher), to_start_vertices(launcher))
    lag = np.where(at_end, -early, np.where(late > 0, late, latency))
    first_piece = (submissions.find_staged_copies(nodes, kernels, without) & idle)[launched - nodes.n_host]
    lag = np.where(first_piece, nodes.start_ns[launched] - nodes.start_ns[launcher], lag)
    # On a faster CPU a graph is not submitted before its call has begun.
    begun = at_end & (early > 0)
    source = np.concatenate([source, to_start_vertices(launcher[begun])])
    target = np.concatenate([to_start_vertices(launched), to_start_vertices(launched[begun])])
    return Edges(EdgeKind.LAUNCH, source, target, np.concatenate([lag, np.zeros(begun.sum(), dtype=lag.dtype)]))


def _estimate_latency(nodes: Nodes, kernels: pl.DataFrame, idle: Bools, held_back: Ints) -> Ints:
    """Estimate launch latencies from launches by the same call (copies and memsets: of the same name).

    Rare ones use the median over all kernels, or over all copies and memsets: a copy of pageable memory starts 50 us
    after its call.
    """
    measured = np.maximum(nodes.start_ns[nodes.activities] - nodes.start_ns[nodes.launcher], 0)
    tells = idle & (measured < MAX_LATENCY_NS)
    tells[held_back - nodes.n_host] = False
    is_kernel = (kernels["kind"] == "kernel").to_numpy()
    expected = np.full(tells.size, float(np.median(measured[tells])) if tells.any() else DEFAULT_LATENCY_NS)
    for group, least in (
        (is_kernel.astype(np.int64), MIN_SAMPLES_BY_TYPE),
        (_group_alike(nodes, kernels), MIN_SAMPLES),
    ):
        median, count = compute_medians(measured[tells], group[tells], int(group.max(initial=0)) + 1)
        expected = np.where(count[group] >= least, median[group], expected)
    return np.rint(expected).astype(np.int64)


def _group_alike(nodes: Nodes, kernels: pl.DataFrame) -> Ints:
    """Number the names of calls that launch kernels, and after them those of copies and memsets."""
    group = np.append(nodes.distinct_names.number, NONE)[nodes.launcher] + 1
    moves = np.flatnonzero((kernels["kind"] != "kernel").to_numpy())
    group[moves] = DistinctNames.from_column(kernels["name"][moves]).number + len(nodes.distinct_names.names) + 1
    return group


def _find_idle_stream_launches(nodes: Nodes) -> Bools:
    """Return, for each activity, whether its stream was idle when its launch call began."""
    before, after = nodes.find_neighbours(nodes.activities)
    busy_until = np.full(nodes.activities.size, np.iinfo(np.int64).min)
    busy_until[after - nodes.n_host] = nodes.end_ns[before]
    idle: Bools = (nodes.launcher != NONE) & (busy_until < nodes.start_ns[nodes.launcher])
    return idle


# Between queued kernels of a stream: 0.75 to 2 us on A100, H100, V100; 0 on ROCm. Used where a trace never has two in
# the queue.
DEFAULT_GAP_NS = 1_000
# Queued activities further apart than this waited for something other than each other.
MAX_GAP_NS = 20_000
TRUNCATION_NS = 1_000
"""Profilers before 2024 truncate times to whole microseconds, and so the median of many gaps."""


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """Edges and durations that follow from stream order.

    Attributes:
        hidden_ns: Time before each activity of a CUDA graph that stands for work the trace does not show.
        early_ns: Part of each activity's duration that is waiting for the previous activity on its stream.
    """

    edges: Edges
    hidden_ns: Ints
    early_ns: Ints


def link_streams(nodes: Nodes, kernels: pl.DataFrame, launch_edges: Edges, without: RuleNames) -> StreamOrder:
    """Build stream-order edges.

    The lag is the stream's median gap between queued activities, separately within and outside one CUDA graph, and
    between kernels or beside a copy or memset. An activity launched before the trace keeps its measured distance: its
    dependencies are not known.
    """
    before, after = nodes.find_neighbours(nodes.activities)
    gap = nodes.start_ns[after] - nodes.end_ns[before]
    ready = np.full(nodes.start_ns.size, np.iinfo(np.int64).max)
    ready[launch_edges.dst // 2] = nodes.get_vertex_times(launch_edges.src) + launch_edges.lag_ns
    queued = ready[after] < nodes.end_ns[before]
    close = queued & (gap < MAX_GAP_NS)
    launcher_before, launcher_after = nodes.launcher[before - nodes.n_host], nodes.launcher[after - nodes.n_host]
    same_graph = (launcher_before == launcher_after) & (launcher_after != NONE)

    moved = np.zeros(gap.size, dtype=np.bool_)
    if stream_gaps.COPY_GAPS_RULE.is_on(without):
        moved = stream_gaps.find_copy_neighbours(nodes, kernels, before, after)

    anywhere = _estimate_gap(gap[close & ~same_graph], DEFAULT_GAP_NS)
    lag = np.full(gap.size, anywhere)
    for lane in np.unique(nodes.lane[after]).tolist():
        for graph in (False, True):
            group = (nodes.lane[after] == lane) & (same_graph == graph)
            of_group = _estimate_gap(gap[group & close], anywhere)
            for kind in (False, True):
                alike = group & (moved == kind)
                lag[alike] = _estimate_gap(gap[alike & close], of_group)
    hidden = np.zeros(nodes.activities.size, dtype=np.int64)
    if stream_gaps.CUDA_GRAPH_GAPS_RULE.is_on(without):
        distances = stream_gaps.measure_replay_gaps(nodes, kernels, before, after, queued)
        lag = np.maximum(lag, distances)
        hidden[after - nodes.n_host] = np.where(distances > stream_gaps.MIN_HIDDEN_NS, distances, 0)
    lag = np.where(launcher_after == NONE, gap, lag)
    early = np.zeros(nodes.activities.size, dtype=np.int64)
    if stream_gaps.DEPENDENT_LAUNCH_RULE.is_on(without):
        early[after - nodes.n_host] = stream_gaps.measure_early_ns(nodes, before, after)
    return StreamOrder(Edges(EdgeKind.STREAM, to_end_vertices(before), to_start_vertices(after), lag), hidden, early)


def _estimate_gap(gaps: Ints, default: int) -> int:
    """Estimate the usual gap: the median or, for whole microseconds, the mean near the median.

    The mean averages out the truncation.
    """
    if gaps.size < MIN_SAMPLES:
        return default
    median = float(np.median(gaps))
    near = gaps[np.abs(gaps - median) <= TRUNCATION_NS]
    cut = near.size > 0 and not (gaps % TRUNCATION_NS).any()
    return round(float(near.mean() if cut else median))


@dataclass(frozen=True, slots=True)
class ThreadOrder:
    """Program-order edges, whose lag is the thread's own work; hand-over edges; and the idle time they derive.

    ``idle_ns`` is the idle time before each host node.
    """

    program: Edges
    handover: Edges
    idle_ns: Ints


def link_threads(nodes: Nodes, polls: HostWaits, handed: Handovers) -> ThreadOrder:
    """Build edges between host nodes."""
    before, after = nodes.find_neighbours(np.arange(nodes.n_host))
    nested = nodes.start_ns[after] < nodes.end_ns[before]
    src = np.where(nested, to_start_vertices(before), to_end_vertices(before))
    measured = nodes.start_ns[after] - np.where(nested, nodes.start_ns[before], nodes.end_ns[before])
    waited = np.zeros(nodes.n_host, dtype=np.int64)
    np.add.at(waited, handed.receiver, handed.idle_ns)
    waited[polls.receiver] = polls.idle_ns
    work_ns: Ints = np.maximum(measured - waited[after], 0)
    idle_ns = np.zeros(nodes.n_host, dtype=np.int64)
    idle_ns[after] = np.maximum(measured, 0) - work_ns
    lag_ns = nodes.start_ns[handed.receiver] - nodes.end_ns[handed.giver]
    return ThreadOrder(
        program=Edges(EdgeKind.PROGRAM, src, to_start_vertices(after), work_ns),
        handover=Edges(EdgeKind.HANDOVER, to_end_vertices(handed.giver), to_start_vertices(handed.receiver), lag_ns),
        idle_ns=idle_ns,
    )
