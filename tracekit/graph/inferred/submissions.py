"""When launch calls hand their work to the GPU, and how long they wait for a place in its queue."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints, list_used_rows
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes, find_named_copies
from tracekit.rules import NO_RULES, Rule, RuleNames

SUBMISSION_RULE = Rule(
    "launch-submission",
    "Slow launch calls and CUDA graph launches submit their work at their end, or as late as measured.",
    "TriForce and LightLLM, 2 to 5 % short without the rule for graphs; without that for slow calls 59 % of a first "
    "step is idle without a reason.",
)
"""When slow calls and launches of CUDA graphs submit their work to the GPU.

* A CUDA graph is submitted as a whole. Where no part of it ran before its launch call had returned (of a slow call:
  nearly returned), none can.
* A slow call that let its graph or copy start earlier, long after the call began and on an idle GPU, will do so again.
* A kernel that started shortly before its slow call returned waits for the call, as calls that load its code do.
"""
MIN_SLOW_CALL_NS = 100_000
"""A call that takes longer did more than launch."""
# An activity that starts in this last fraction of a slow call waited for the call's end.
LAST_FRACTION = 0.1


@dataclass(frozen=True, slots=True)
class SubmissionTimes:
    """When each launched activity was submitted.

    Attributes:
        at_end: Whether at the end of its launch call.
        early_ns: How long before that end it started.
        late_ns: Delay from the call's start, where a graph's or copy's call submitted it in its midst; else 0.
    """

    at_end: Bools
    early_ns: Ints
    late_ns: Ints


def find_submission_times(nodes: Nodes, launcher: Ints, launched: Ints, is_kernel: Bools) -> SubmissionTimes:
    """Find when CUDA graphs, and the kernels of slow calls, were submitted to the GPU."""
    graphs, kernel = nodes.is_graph_launch, is_kernel[launched - nodes.n_host]
    start, end = nodes.start_ns[: nodes.n_host], nodes.end_ns[: nodes.n_host]
    first = np.full(nodes.n_host, np.iinfo(np.int64).max)
    np.minimum.at(first, launcher, nodes.start_ns[launched])
    early = np.maximum(end - first, 0)
    near = (end - start > MIN_SLOW_CALL_NS) & (early <= LAST_FRACTION * (end - start))
    whole = (graphs & ((early == 0) | near))[launcher]
    whole |= (near & (early > 0))[launcher] & kernel
    late = np.where((first - start > MIN_SLOW_CALL_NS) & (_compute_busy_until(nodes, first) <= start), first - start, 0)
    held = graphs[launcher] | (~kernel & (early > 0)[launcher])
    return SubmissionTimes(whole, early[launcher], np.where(held, late[launcher], 0))


def _compute_busy_until(nodes: Nodes, times: Ints) -> Ints:
    """Return when the activities that had started before each time were over."""
    order = nodes.activities[np.argsort(nodes.start_ns[nodes.activities], kind="stable")]
    reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(nodes.end_ns[order])])
    busy: Ints = reached[np.searchsorted(nodes.start_ns[order], times)]
    return busy


def assume_prompt_submission(launched: Ints) -> SubmissionTimes:
    """Return the times without this rule: every launch is submitted right after its call began."""
    return SubmissionTimes(np.zeros(launched.size, dtype=np.bool_), np.zeros_like(launched), np.zeros_like(launched))


PAGEABLE_COPIES_RULE = Rule(
    "staged-copies",
    "A pageable copy starts before its call returns, as the call hands over the data piece by piece.",
    "All 85 calls in 58 public traces whose copies took 0.1 ms or more returned 12 to 163 us before the copy ended.",
)
"""Copies from pageable memory whose data the call hands to the GPU piece by piece."""

PAGEABLE_COPY_NAME = "HtoD (Pageable"


def find_staged_copies(nodes: Nodes, kernels: pl.DataFrame, without: RuleNames = NO_RULES) -> Bools:
    """Return, for each activity, whether it is a pageable copy whose call returned while the copy was still running.

    The call returns when the last piece is on its way. Short copies are buffered: their call returns before the copy
    starts.
    """
    if not PAGEABLE_COPIES_RULE.is_on(without):
        return np.zeros(nodes.activities.size, dtype=np.bool_)
    known = nodes.launcher != NONE
    returned = np.where(known, nodes.end_ns[nodes.launcher], 0)
    start, end = nodes.start_ns[nodes.n_host :], nodes.end_ns[nodes.n_host :]
    pageable = find_named_copies(kernels, PAGEABLE_COPY_NAME)
    during: Bools = pageable & known & (start < returned) & (returned < end)
    return during


LAUNCH_QUEUE_RULE = Rule(
    "launch-queue",
    "A launch waits while its stream holds 1022 activities.",
    "One A100 trace, in which 885 of 919 long launches saw exactly that many, and returned 6.2 us (p10 to p90: "
    "5.5 to 7.2) after the end of the activity 1022 places before. ResNet-50 on a V100: predicted 3 times as long "
    "on an H100 without the rule.",
)
"""The launch queue: a launch waits while its stream holds as many activities as the driver takes.

On CUDA a stream holds 1022 launches, the running one included.
"""

QUEUE_DEPTH = 1022
RETURN_LAG_NS = 6_000
# Largest deviation of a measured return from the rule, and the least duration of such a launch as a multiple of the
# typical one.
TOLERANCE_NS = 20_000
MIN_DURATION_RATIO = 3


NO_QUEUE = Edges(EdgeKind.QUEUE, EMPTY_NODES, EMPTY_NODES, EMPTY_NODES)


def link_launch_queue(nodes: Nodes, own_ns: Ints) -> tuple[Edges, Ints]:
    """Build edges from the end of the activity that frees a place to the end of the launch that takes it.

    ``own_ns`` is the duration of every host node without the waits found so far.

    Returns:
        The edges, and ``own_ns`` without the waits of launches in a full queue.
    """
    if not nodes.is_nvidia:
        return NO_QUEUE, own_ns
    pairs = [_pair_launches(nodes, lane) for lane in np.unique(nodes.lane[nodes.n_host :]).tolist()]
    frees, launch = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    late = nodes.end_ns[launch] - nodes.end_ns[frees]
    possible = late >= 0
    frees, launch, late = frees[possible], launch[possible], late[possible]
    typical = int(np.median(own_ns[list_used_rows(nodes.launcher)])) if launch.size else 0
    waited = (np.abs(late - RETURN_LAG_NS) < TOLERANCE_NS) & (nodes.dur_ns[launch] > MIN_DURATION_RATIO * typical)
    own = own_ns.copy()
    own[launch[waited]] = typical
    return Edges(
        EdgeKind.QUEUE, to_end_vertices(frees), to_end_vertices(launch), np.full(launch.size, RETURN_LAG_NS)
    ), own


def _pair_launches(nodes: Nodes, lane: int) -> tuple[Ints, Ints]:
    """Return (activity, launch) pairs ``QUEUE_DEPTH`` places apart; a CUDA graph takes one place."""
    activities = nodes.activities[nodes.lane[nodes.n_host :] == lane]
    activities = activities[np.argsort(nodes.start_ns[activities], kind="stable")]
    launcher = nodes.launcher[activities - nodes.n_host]
    last_of_launch = np.concatenate([(launcher[1:] != launcher[:-1]) | (launcher[1:] == NONE), [True]])
    places, launches = activities[last_of_launch], launcher[last_of_launch]
    frees, launch = places[:-QUEUE_DEPTH], launches[QUEUE_DEPTH:]
    return frees[launch != NONE], launch[launch != NONE]
