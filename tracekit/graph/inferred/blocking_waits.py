"""What blocking calls waited for, where no event records it."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints, fill_false
from tracekit.graph import recorded
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.nodes import (
    EMPTY_NODES,
    EVENT_SYNC_CALLS,
    NONE,
    PINNED_COPY_NAME,
    ROCM_CLOCK_ERROR_NS,
    STREAM_SYNC_CALLS,
    WAIT_CALLS,
    IssuedActivities,
    Nodes,
    find_named_copies,
)
from tracekit.rules import Rule, RuleNames

SYNC_TARGETS_RULE = Rule(
    "sync-targets",
    "A stream or event synchronisation waited for the activity that ended last within the call.",
    "torchao, vLLM and others: without the rule a faster GPU gains nothing where the host waits in such calls.",
)
"""Which activity a stream or event synchronisation waits for, where no event records it.

A call that waited returns right after the awaited activity ended.
"""
MAX_RETURN_FRACTION = 0.01
"""The inferred activity ends nearer to the call's return than this fraction of the call, else it is doubted."""


def infer_sync_targets(nodes: Nodes, issued: IssuedActivities, known: Ints, without: RuleNames) -> tuple[Ints, Ints]:
    """Infer pairs of activity and call, for the calls whose activity is not ``known`` from the trace."""
    if not SYNC_TARGETS_RULE.is_on(without):
        return EMPTY_NODES, EMPTY_NODES
    pairs = [_infer_stream_syncs(nodes, issued), _infer_event_syncs(nodes, issued)]
    activity, call = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    inferred = (activity != NONE) & ~np.isin(call, known)
    return activity[inferred], call[inferred]


def _infer_stream_syncs(nodes: Nodes, issued: IssuedActivities) -> tuple[Ints, Ints]:
    """Infer the stream of stream synchronisations.

    It is the stream that became idle last within the call, else the stream of the latest launch.
    """
    calls = nodes.find_calls(STREAM_SYNC_CALLS)
    last = issued.find_last_before(nodes.start_ns[calls])
    end = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    ended_within = (end > nodes.start_ns[calls]) & (end <= nodes.end_ns[calls])
    launcher = np.where(last == NONE, NONE, nodes.launcher[np.maximum(last - nodes.n_host, 0)])
    launched = np.where(launcher == NONE, NONE, nodes.start_ns[launcher])
    score = np.where(ended_within, end, np.iinfo(np.int64).min // 2 + launched)
    chosen = last[np.argmax(score, axis=0), np.arange(calls.size)] if calls.size else calls
    return chosen, calls


def _infer_event_syncs(nodes: Nodes, issued: IssuedActivities) -> tuple[Ints, Ints]:
    """Infer the activity of event synchronisations: the one that ended last within the call, if any."""
    calls = nodes.find_calls(EVENT_SYNC_CALLS)
    best, best_end = np.full(calls.size, NONE), nodes.start_ns[calls]
    for activities, launched in issued.streams:
        end = np.maximum.accumulate(nodes.end_ns[activities])
        index = np.minimum(
            np.searchsorted(end, nodes.end_ns[calls], side="right"), np.searchsorted(launched, nodes.start_ns[calls])
        ) - 1  # fmt: skip
        better = (index >= 0) & (end[index] > best_end)
        best, best_end = np.where(better, activities[index], best), np.where(better, end[index], best_end)
    return best, calls


UNRECORDED_WORK_RULE = Rule(
    "unrecorded-work",
    "A wait of the CPU beyond all recorded GPU work was for work that isn't recorded.",
    "Traces that lost kernels with their launches (pytorch#192021, vllm-ascend#1702). Of 1,063 waits in 87 traces it "
    "takes 2, which end 59 and 60 us late and outside the steps, for such ones.",
)
"""Work of the GPU that the trace doesn't hold, although the CPU waited for it.

A call that only waits returns soon after the last activity that it covers, and a blocking copy of a result to the host
starts soon after it. Where the GPU did nothing recorded for longer, it did something that isn't recorded: kernels that
the profiler lost with their launches, or what a CUDA graph's conditional node repeats::

    CPU   | launches |----------------- cudaStreamSynchronize -----------------|
    GPU      |=== kernel ===|=== kernel ===|......... not recorded .........|
                                           |-- UNRECORDED edge ----------------|
"""
MIN_LATE_NS = 50_000
"""A wait typically returns 3 to 10 us after the awaited activity."""
MIN_LATE_FRACTION = 0.001
"""Of the call: one of 1.02 s on an H100 returned 53 us late, as its thread had to wake up."""
MAX_OVERHEAD_FRACTION = 0.5
"""Of the time, in which the profiler may have held the call up instead."""


@dataclass(frozen=True, slots=True)
class UnrecordedWork:
    """Waits for work that isn't recorded.

    Attributes:
        edges: From the last recorded activity, or the wait's start, to the end of the call or the start of the copy.
        calls: The calls that waited, host nodes.
    """

    edges: Edges
    calls: Ints
    copies: Ints

    @property
    def calls_ns(self) -> Ints:
        """How long each of the calls waited for such work."""
        return self.edges.lag_ns[: self.calls.size]


NO_WORK = UnrecordedWork(Edges(EdgeKind.UNRECORDED, *[EMPTY_NODES] * 3), EMPTY_NODES, EMPTY_NODES)


def find_unrecorded_work(nodes: Nodes, kernels: pl.DataFrame, overheads: pl.DataFrame) -> UnrecordedWork:
    """Find the waits for work that isn't recorded."""
    calls, copies = nodes.find_calls(WAIT_CALLS), _find_blocking_copies(nodes, kernels)
    if not (nodes.activities.size and calls.size + copies.size):
        return NO_WORK
    launcher = nodes.launcher[copies - nodes.n_host]
    until = np.concatenate([nodes.end_ns[calls], nodes.start_ns[copies]])
    since = np.concatenate([nodes.start_ns[calls], nodes.start_ns[launcher]])
    # Before a copy starts, the driver may pin or stage its memory: 0.13 to 0.21 ms for copies of 0.23 ms on an MI300X.
    own = np.concatenate([(MIN_LATE_FRACTION * nodes.dur_ns[calls]).astype(np.int64), nodes.dur_ns[copies]])
    last, ended, is_idle = _find_last_before(nodes, until)
    late = until - np.maximum(ended, since)
    busy = _build_overhead_spans(nodes, overheads, int(until.max(initial=0)))
    held = busy.measure_covered_ns(np.zeros_like(until), np.maximum(ended, since), until)
    found = is_idle & (late - held > MIN_LATE_NS + own) & (held <= MAX_OVERHEAD_FRACTION * late)
    waits = np.concatenate([calls, launcher])
    source = np.where(ended > since, to_end_vertices(last), to_start_vertices(waits))
    target = np.concatenate([to_end_vertices(calls), to_start_vertices(copies)])
    is_call = np.arange(until.size) < calls.size
    edges = Edges(EdgeKind.UNRECORDED, source[found], target[found], late[found])
    return UnrecordedWork(edges, waits[found & is_call], target[found & ~is_call] // 2)


def _find_blocking_copies(nodes: Nodes, kernels: pl.DataFrame) -> Ints:
    """Find the copies to pageable memory of the host that their calls waited for, as ``.item()`` does.

    The first activity of a stream may wait for work from before the trace.
    """
    to_host = (kernels["kind"] == "memcpy").to_numpy() & fill_false(kernels["copy_kind"] == "DtoH")
    pageable = to_host & ~find_named_copies(kernels, PINNED_COPY_NAME)
    copies = nodes.activities[pageable & (nodes.launcher != NONE)]
    blocked = nodes.end_ns[nodes.launcher[copies - nodes.n_host]] >= nodes.start_ns[copies]
    _, followers = nodes.find_neighbours(nodes.activities)
    kept: Ints = copies[blocked & np.isin(copies, followers)]
    return kept


def _find_last_before(nodes: Nodes, times: Ints) -> tuple[Ints, Ints, Bools]:
    """Find the activity that ended last of those that started before each time, on any GPU of the process.

    Returns:
        It; when it ended; and whether that was before the time, so that nothing recorded was running.
    """
    order = nodes.activities[np.argsort(nodes.start_ns[nodes.activities], kind="stable")]
    reached = np.maximum.accumulate(nodes.end_ns[order])
    latest = order[np.maximum.accumulate(np.where(nodes.end_ns[order] == reached, np.arange(order.size), 0))]
    place = np.searchsorted(nodes.start_ns[order], times) - 1
    ended = np.where(place >= 0, reached[place], np.iinfo(np.int64).min)
    return latest[place], np.minimum(ended, times), ended <= times + ROCM_CLOCK_ERROR_NS


def _build_overhead_spans(nodes: Nodes, overheads: pl.DataFrame, until: int) -> recorded.HostSpans:
    start = overheads["ts_ns"].to_numpy() - nodes.origin_ns
    return recorded.merge_intervals(start, start + overheads["dur_ns"].to_numpy(), until + 2)
