"""Launches: an activity starts after its launch call, joined by the recorded correlation id, plus the launch latency.

The latency is a median of the trace.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, DistinctNames, Ints, compute_medians
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.inferred import pageable_copies, submission
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

    Args:
        nodes: The nodes.
        kernels: The kernel table.
        held_back: Activities known to have waited for another stream: no samples of the latency.
        held_copies: Copies that waited for work that isn't recorded, likewise: their launch isn't what delayed them.
        without: Inference rules that are off.
    """
    launched = nodes.activities[nodes.launcher != NONE]
    launcher = nodes.launcher[nodes.launcher != NONE]
    idle = _find_idle_stream_launches(nodes)
    held_back = np.concatenate([held_back, held_copies])
    latency = _estimate_latency(nodes, kernels, idle, held_back)[nodes.launcher != NONE]
    submitted = submission.assume_prompt_submission(launched)
    if submission.RULE.is_on(without):
        is_kernel = (kernels["kind"] == "kernel").to_numpy()
        submitted = submission.find_submission_times(nodes, launcher, launched, is_kernel)
    at_end, early = submitted.at_end, submitted.early_ns
    late = np.where(np.isin(launched, held_copies), 0, submitted.late_ns)
    source = np.where(at_end, to_end_vertices(launcher), to_start_vertices(launcher))
    lag = np.where(at_end, -early, np.where(late > 0, late, latency))
    first_piece = (pageable_copies.find_staged_copies(nodes, kernels, without) & idle)[launched - nodes.n_host]
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
